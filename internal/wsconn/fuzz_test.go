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

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A stream parses what a client sends as RFC 6455 specifies it. It is a model: slow and simple.
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
	peerCode int // of the close frame
}

var (
	errForbidden = errors.New("forbidden")
	errNotText   = errors.New("text is not UTF-8")
	errDeflate   = errors.New("data cannot be decompressed")
	errFlood     = errors.New("too many frames without data")
)

// parse returns the messages up to a close frame, the first frame that the RFC forbids, or the
// end; and the codes that the server may then report, nil if they depend on timing. It
// returns false if the messages depend on the clock.
func parse(client []byte, inflates bool) (messages []string, codes []int, ok bool) {
	s := stream{bytes: client, inflates: inflates}
	var err error
	for err == nil {
		err = s.frame()
	}
	switch {
	case errors.Is(err, errForbidden):
		codes = []int{1002}
	case errors.Is(err, errNotText):
		codes = []int{1007}
	case errors.Is(err, errFlood):
		codes = []int{1008}
	case s.peerCode > 0:
		codes = []int{s.peerCode}
	}
	switch {
	case errors.Is(err, errDeflate), errors.Is(err, errNotText) && s.deflated:
		codes = []int{1002, 1007, 1009}
	case s.deflated && s.inside: // the beginning may be decompressed already
		codes = nil
	}
	return s.messages, codes, s.controls <= 90
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
	payload := make([]byte, n)
	for i, b := range masked {
		payload[i] = b ^ key[i%4]
	}
	if control {
		s.controls++
		if op == closing {
			return s.close(payload)
		}
		return nil
	}
	if s.empty++; n > 0 {
		s.empty = 0
	} else if s.empty > 1<<14 {
		return errFlood // a limit of the server
	}
	s.partial = append(s.partial, payload...)
	if s.inside = !isFin; isFin {
		return s.message()
	}
	if invalid, _ := scanUTF8(s.partial); invalid >= 0 && !s.binary && !s.deflated {
		return errNotText
	}
	return nil
}

// message ends a message.
func (s *stream) message() (err error) {
	message := s.partial
	if s.deflated {
		if message, err = inflated(s.partial); err != nil || len(message) > 1<<20 {
			return errDeflate
		}
	}
	if invalid, inside := scanUTF8(message); !s.binary && (invalid >= 0 || inside) {
		return errNotText
	}
	s.messages = append(s.messages, described(string(message), s.binary))
	s.partial, s.deflated = nil, false
	return nil
}

// close is RFC 6455, sections 5.5.1 and 7.4.
func (s *stream) close(payload []byte) error {
	if len(payload) == 0 {
		s.peerCode = 1005
		return io.EOF
	}
	if len(payload) == 1 {
		return errForbidden
	}
	code := int(binary.BigEndian.Uint16(payload))
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014, code >= 3000 && code <= 4999:
	default:
		return errForbidden
	}
	if invalid, inside := scanUTF8(payload[2:]); invalid >= 0 || inside {
		s.peerCode = 1007
		return io.EOF
	}
	s.peerCode = code
	return io.EOF
}

func described(message string, isBinary bool) string {
	if isBinary {
		return "binary:" + message
	}
	return "text:" + message
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

// FuzzRead sends arbitrary bytes, in one piece and in many, and compares the messages that
// the server reads with those of the model.
func FuzzRead(f *testing.F) {
	for _, seed := range readSeeds() {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	addr, conns := listenFuzz(f, nil)
	wrappedAddr, wrappedConns := listenFuzz(f, func(c net.Conn) net.Conn { return hidden{c} })
	f.Fuzz(func(t *testing.T, client []byte, inflates bool) {
		want, codes, ok := parse(client, inflates)
		if !ok {
			t.Skip("the limit of control frames depends on the clock")
		}
		for _, pieces := range []int{1, 7} {
			check := func(path string, got []string, code int) {
				if !slices.Equal(got, want) {
					t.Fatalf("%s in %d pieces: read %q, want %q", path, pieces, got, want)
				}
				if codes != nil && !slices.Contains(codes, code) {
					t.Fatalf("%s in %d pieces: code %d, want one of %d", path, pieces, code, codes)
				}
			}
			got, code := exchange(t, addr, conns, client, inflates, pieces)
			check("TCP", got, code)
			got, code = exchange(t, wrappedAddr, wrappedConns, client, inflates, pieces)
			check("wrapped", got, code)
		}
	})
}

// listenFuzz serves connections that wrap returns, unless it is nil.
func listenFuzz(f *testing.F, wrap func(net.Conn) net.Conn) (string, <-chan *wsconn.Conn) {
	conns := make(chan *wsconn.Conn)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	if wrap != nil {
		listener = wrappingListener{listener, wrap}
	}
	opts := options()
	opts.CloseTimeout = 100 * time.Millisecond
	opts.Deflater = wsconn.NewDeflater(1, 0)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := wsconn.Accept(w, r, "", opts, newHandler()); err == nil {
			conns <- c
		}
	})}
	go func() { _ = server.Serve(listener) }()
	f.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), conns
}

// exchange sends client to a server and returns the messages that the server reads, and the code
// of the close frame that was sent or received first.
func exchange(t *testing.T, addr string, conns <-chan *wsconn.Conn, client []byte, inflates bool, pieces int) (messages []string, code int) {
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
		t.Error("the connection does not end")
		c.Abort()
	})
	defer stalled.Stop()
	for {
		msg, err := next(c)
		if err != nil {
			code, _ = c.Status()
			return messages, code
		}
		messages = append(messages, described(string(msg.Bytes), msg.Binary))
		msg.Release()
	}
}

// readSeeds returns bytes that clients may send.
func readSeeds() [][]byte {
	masked := clientFrame
	hello := masked(fin|text, "hello")
	return [][]byte{
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
			make([]byte, 100), hello, make([]byte, 14)),
		slices.Concat(masked(fin|text, strings.Repeat("y", 17_000)), hello),
		slices.Concat(hello, masked(fin|0x3, ""), hello),
		slices.Concat(masked(fin|rsv1|text, deflated("hello hello hello")), hello, masked(fin|rsv1|text, deflated("bye"))),
		slices.Concat(masked(rsv1|text, deflated("hello hello hello")[:5]), masked(fin|ping, ""), masked(fin|continuation, deflated("hello hello hello")[5:]), hello),
		slices.Concat(masked(rsv1|text, "a"), masked(fin|rsv1|continuation, "b"), hello),
		slices.Concat(masked(fin|rsv1|text, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), hello), // RFC 7692, section 7.2.3.4
		masked(fin|rsv1|text, strings.Repeat("\x03\x00", 20)),
		slices.Concat(masked(text, "\xe2\x82"), masked(fin|ping, "?"), masked(fin|continuation, "\xac"), masked(fin|binaryData, "\xff"), hello),
		slices.Concat(hello, masked(text, "\xe2"), masked(fin|continuation, "\x28"), hello),
		slices.Concat(hello, masked(fin|text, "\xf0\x9f\x98"), hello),
		slices.Concat(hello, masked(fin|rsv1|text, deflated("\xed\xa0\x80")), hello),
		slices.Concat(hello, masked(fin|closing, "\x03\xed")),
		slices.Concat(hello, masked(fin|closing, "\x03\xe8\xff")),
		slices.Concat(hello, masked(fin|closing, ""), hello),
		slices.Concat(hello, masked(fin|closing, "x"), hello),
		slices.Concat(masked(fin|rsv1|text, ""), masked(fin|rsv1|text, "\x00"), masked(fin|rsv1|text, "\x01\x05\x00"), hello),
	}
}
