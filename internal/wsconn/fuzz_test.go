package wsconn_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A stream is what a client sends, cut into frames as RFC 6455 has it. It is
// slow and obviously right.
type stream struct {
	bytes    []byte
	inflates bool
	deflated bool // the message that is being read
	binary   bool // likewise
	messages []string
	partial  []byte
	inside   bool // a fragmented message
	empty    int  // frames without data in a row
	controls int
}

var errForbidden = errors.New("forbidden")

// parse returns what the messages are, up to a close frame, the first frame that
// the RFC forbids, or the end.
func parse(client []byte, inflates bool) []string {
	s := stream{bytes: client, inflates: inflates}
	for s.frame() == nil {
	}
	return s.messages
}

func (s *stream) take(n uint64) ([]byte, error) {
	if uint64(len(s.bytes)) < n {
		return nil, io.ErrUnexpectedEOF
	}
	p := s.bytes[:n]
	s.bytes = s.bytes[n:]
	return p, nil
}

func (s *stream) frame() error {
	head, err := s.take(2)
	if err != nil {
		return err
	}
	isFin, rsv, op := head[0]&0x80 != 0, head[0]&0x70, head[0]&0x0f
	n, err := s.length(head[1] & 0x7f)
	control := op >= 8
	if s.inflates && (op == text || op == binaryData) && rsv == 0x40 {
		rsv, s.deflated = 0, true
	}
	switch {
	case err != nil:
		return err
	case rsv != 0, head[1]&0x80 == 0, op > 2 && op < 8 || op > 10:
		return errForbidden
	case control && (!isFin || n > 125):
		return errForbidden
	case !control && (op == 0) != s.inside:
		return errForbidden
	}
	if op == text || op == binaryData {
		s.binary = op == binaryData
	}
	key, err := s.take(4)
	if err != nil {
		return err
	}
	masked, err := s.take(n)
	if err != nil {
		return err
	}
	if op == closing {
		return io.EOF
	}
	if control {
		if s.controls++; s.controls > 100 {
			return errForbidden // not by the RFC
		}
		return nil
	}
	if s.empty++; n > 0 {
		s.empty = 0
	} else if s.empty > 1<<14 {
		return errForbidden // not by the RFC
	}
	for i, b := range masked {
		s.partial = append(s.partial, b^key[i%4])
	}
	if s.inside = !isFin; isFin {
		message := s.partial
		if s.deflated {
			if message, err = inflated(s.partial); err != nil {
				return err
			}
		}
		if !s.binary && !utf8.Valid(message) {
			return errForbidden
		}
		s.messages = append(s.messages, string(message))
		s.partial, s.deflated = nil, false
	}
	return nil
}

// inflated is RFC 7692, section 7.2.2.
func inflated(p []byte) (message []byte, err error) {
	r := bytes.NewReader(slices.Concat(p, []byte("\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
	for range 17 { // the RFC has no limit
		part, err := io.ReadAll(flate.NewReader(r))
		message = append(message, part...)
		if err != nil || r.Len() == 0 {
			return message, err
		}
	}
	return nil, errForbidden
}

func (s *stream) length(n byte) (uint64, error) {
	switch n {
	case 126:
		p, err := s.take(2)
		if err != nil {
			return 0, err
		}
		length := uint64(binary.BigEndian.Uint16(p))
		if length < 126 {
			return 0, errForbidden // section 5.2: the minimal number of bytes
		}
		return length, nil
	case 127:
		p, err := s.take(8)
		if err != nil {
			return 0, err
		}
		length := binary.BigEndian.Uint64(p)
		if length < 1<<16 || length>>63 == 1 {
			return 0, errForbidden
		}
		return length, nil
	default:
		return uint64(n), nil
	}
}

// FuzzRead sends arbitrary bytes, in one piece and in many, and wants just the
// messages that the RFC finds in them.
func FuzzRead(f *testing.F) {
	mask := []byte{1, 2, 3, 4}
	masked := func(first byte, payload string) []byte {
		b := frame(first, payload)
		key := b[len(b)-len(payload)-4:]
		copy(key, mask)
		for i := range payload {
			key[4+i] ^= mask[i%4]
		}
		return b
	}
	hello := masked(fin|text, "hello")
	for _, seed := range [][]byte{
		hello,
		slices.Concat(hello, masked(fin|binaryData, ""), masked(fin|text, strings.Repeat("x", 300)), hello),
		slices.Concat(masked(text, "a"), masked(fin|ping, "?"), masked(continuation, ""), masked(fin|continuation, "b"), hello),
		slices.Concat(masked(text, "a"), hello),
		slices.Concat(masked(fin|continuation, "a"), hello),
		slices.Concat(hello, masked(fin|closing, "\x03\xe8"), hello),
		slices.Concat(hello, []byte{0x81, 0x05}, []byte("plain")),
		slices.Concat(hello, []byte{0xc1, 0x80, 0, 0, 0, 0}, hello),
		slices.Concat([]byte{0x81, 0x80 | 126, 0, 5, 0, 0, 0, 0}, []byte("short"), hello),
		slices.Concat([]byte{0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0}, []byte("short"), hello),
		slices.Concat(masked(fin|ping, strings.Repeat("p", 125)), masked(fin|pong, ""), hello[:len(hello)-1]),
		slices.Concat(masked(ping, ""), hello),
		slices.Concat(masked(fin|ping, "?"), masked(fin|pong, "!"), hello, masked(fin|ping, "?")),
		slices.Concat(masked(text, "a"), masked(fin|continuation, "b"), []byte{0x81, 0x80 | 126, 0, 1, 0, 0, 0, 0, 'x'}, hello),
		slices.Concat(masked(text, "a"), masked(fin|continuation, "b"), []byte{0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 125, 0, 0, 0, 0},
			make([]byte, 100), hello, make([]byte, 14)), // 128 bytes until hello, which are what the library asks for at once
		slices.Concat(masked(fin|text, strings.Repeat("y", 17_000)), hello),
		slices.Concat(hello, masked(fin|0x3, ""), hello),
		slices.Concat(masked(fin|rsv1|text, deflated("hello hello hello")), hello, masked(fin|rsv1|text, deflated("bye"))),
		slices.Concat(masked(rsv1|text, deflated("hello hello hello")[:5]), masked(fin|ping, ""), masked(fin|continuation, deflated("hello hello hello")[5:]), hello),
		slices.Concat(masked(rsv1|text, "a"), masked(fin|rsv1|continuation, "b"), hello),
		slices.Concat(masked(fin|rsv1|text, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), hello), // RFC 7692, section 7.2.3.4
		masked(fin|rsv1|text, strings.Repeat("\x03\x00", 20)),
		slices.Concat(masked(fin|rsv1|text, ""), masked(fin|rsv1|text, "\x00"), masked(fin|rsv1|text, "\x01\x05\x00"), hello),
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	addr, conns := listenFuzz(f)
	f.Fuzz(func(t *testing.T, client []byte, inflates bool) {
		want := parse(client, inflates)
		for _, pieces := range []int{1, 7} {
			got := exchange(t, addr, conns, client, inflates, pieces)
			if !slices.Equal(got, want) {
				t.Fatalf("in %d pieces: read %q, want %q", pieces, got, want)
			}
		}
	})
}

func listenFuzz(f *testing.F) (string, <-chan *wsconn.Conn) {
	conns := make(chan *wsconn.Conn)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	opts := options()
	opts.CloseTimeout = 100 * time.Millisecond
	opts.Deflater = wsconn.NewDeflater(1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := wsconn.Accept(w, r, "", opts, ignore{}); err == nil {
			conns <- c
		}
	})}
	go func() { _ = server.Serve(listener) }()
	f.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), conns
}

// exchange sends client to a server and returns the messages that it reads.
func exchange(t *testing.T, addr string, conns <-chan *wsconn.Conn, client []byte, inflates bool, pieces int) []string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	hello := handshake
	if inflates {
		hello = offering("permessage-deflate")
	}
	if _, err := io.WriteString(conn, hello); err != nil {
		t.Fatal(err)
	}
	c := <-conns
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range pieces - 1 {
			n := rand.IntN(len(client) + 1)
			_, _ = conn.Write(client[:n])
			client = client[n:]
			time.Sleep(time.Microsecond) // lets the pieces be read apart, sometimes
		}
		_, _ = conn.Write(client)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}()
	defer c.Release()
	stalled := time.AfterFunc(10*time.Second, func() {
		t.Error("the connection stalls")
		c.Abort()
	})
	defer stalled.Stop()
	var messages []string
	for {
		msg, err := next(c)
		if err != nil {
			return messages
		}
		messages = append(messages, string(msg.Bytes))
		msg.Release()
	}
}
