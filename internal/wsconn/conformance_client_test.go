package wsconn_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// peerTimeout bounds one case. It is shorter than the time limits of the server, so that a
// case fails where the server closes only because of a time limit.
const peerTimeout = 40 * time.Second

// A peer is a WebSocket client that shares no code with the server. It checks what RFC 6455,
// section 5 demands of a server's frames.
type peer struct {
	net.Conn
	r          *bufio.Reader
	extensions string // that the server has accepted
	received   int    // bytes of payloads
	window     []byte // all that was compressed by a server that keeps a window
}

// A serverFrame is a frame from the server. The payload is not compressed, and the bit that
// marks compression is cleared.
type serverFrame struct {
	first   byte
	payload string
}

func (f serverFrame) String() string {
	return fmt.Sprintf("%#x %.100q (%d bytes)", f.first, f.payload, len(f.payload))
}

// dialPeer opens a connection. Without an offer, it does not offer extensions.
func dialPeer(t *testing.T, addr string, secure bool, offer string) *peer {
	t.Helper()
	conn := dialTCP(t, addr)
	require.NoError(t, conn.SetDeadline(time.Now().Add(peerTimeout)))
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	request := handshake
	if offer != "" {
		request = offering(offer)
	}
	_, err := io.WriteString(conn, request)
	require.NoError(t, err)
	p := &peer{Conn: conn, r: bufio.NewReader(conn)}
	resp, err := http.ReadResponse(p.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	p.extensions = resp.Header.Get("Sec-WebSocket-Extensions")
	return p
}

// inflate decompresses a message of the server.
func (p *peer) inflate(payload []byte) ([]byte, error) {
	if strings.Contains(p.extensions, "server_no_context_takeover") {
		return inflated(payload)
	}
	r := flate.NewReaderDict(bytes.NewReader(append(payload, "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...)), p.window)
	message, err := io.ReadAll(r)
	p.window = append(p.window, message...)
	p.window = p.window[max(0, len(p.window)-32<<10):]
	return message, err
}

// clientFrame encodes a masked frame.
func clientFrame(first byte, payload string) []byte {
	key := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	b := append(clientHeader(first, len(payload)), key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// clientHeader encodes the header of a masked frame, without the key.
func clientHeader(first byte, n int) []byte {
	switch {
	case n < 126:
		return []byte{first, 0x80 | byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{first, 0x80 | 126}, uint16(n))
	default:
		return binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(n))
	}
}

// fragments encodes a message in frames of at most n bytes.
func fragments(first byte, message string, n int) (frames [][]byte) {
	for len(message) > n {
		frames = append(frames, clientFrame(first, message[:n]))
		first, message = continuation, message[n:]
	}
	return append(frames, clientFrame(fin|first, message))
}

// read returns the next frame. It fails for a frame that a server must not send.
func (p *peer) read() (f serverFrame, err error) {
	var head [2]byte
	if _, err = io.ReadFull(p.r, head[:]); err != nil {
		return f, err
	}
	f.first = head[0]
	n, err := p.length(head[1])
	if err != nil {
		return f, err
	}
	payload := make([]byte, n)
	if _, err = io.ReadFull(p.r, payload); err != nil {
		return f, err
	}
	p.received += len(payload)
	if f.first == fin|rsv1|text && p.extensions != "" {
		f.first &^= rsv1
		payload, err = p.inflate(payload)
	}
	f.payload = string(payload)
	switch {
	case err != nil:
		return f, err
	case f.first == fin|text:
	case f.first != fin|closing && f.first != fin|ping && f.first != fin|pong:
		return f, fmt.Errorf("frame begins with %#x", f.first)
	case n > 125:
		return f, fmt.Errorf("control frame has %d bytes", n)
	}
	return f, nil
}

func (p *peer) length(second byte) (n uint64, err error) {
	minimum := uint64(0)
	switch second {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(p.r, b[:])
		n, minimum = uint64(binary.BigEndian.Uint16(b[:])), 126
	case 127:
		var b [8]byte
		_, err = io.ReadFull(p.r, b[:])
		n, minimum = binary.BigEndian.Uint64(b[:]), 1<<16
	default:
		n = uint64(second)
	}
	switch {
	case err != nil:
		return 0, err
	case second >= 0x80:
		return 0, errors.New("frame is masked")
	case n < minimum || n > 16<<20:
		return 0, fmt.Errorf("frame has a length of %d encoded with %d", n, second)
	}
	return n, nil
}

// readEnd waits for the end of the stream. A reset is an end, too: it is what the kernel
// sends for bytes that arrive behind a close frame.
func (p *peer) readEnd() error {
	rest, err := io.ReadAll(p.r)
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%.100q follows the close frame", rest)
	case errors.Is(err, syscall.ECONNRESET):
		return nil
	default:
		return err
	}
}
