//go:build linux

package faults_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// clientTimeout bounds the life of a client.
const clientTimeout = time.Minute

// A behavior is how a client ends its connection.
type behavior int

const (
	patient      behavior = iota // waits for all answers, then as closeFrame
	closeFrame                   // sends a close frame and reads to the end
	halfClose                    // shuts down its sending side and reads to the end
	halfFrame                    // the same, after a part of a frame
	invalidFrame                 // and reads to the end
	reset                        // without reading, by a TCP reset
	notReading                   // sends many calls, reads nothing, and resets
	badHandshake                 // ends before the handshake is complete
	behaviors
)

// A stressClient sends messages with the numbers 0, 1, 2 and so on.
type stressClient struct {
	net.Conn
	r        *bufio.Reader
	random   *rand.Rand
	number   int
	network  int
	behavior behavior

	sent     []string      // the type of each message
	complete bool          // all that was sent has left, and the server was able to read it
	expected int           // answers
	answers  map[int]int   // by the number of the call
	answered chan struct{} // closed when all answers or a close frame have arrived
	rejected int           // errors instead of answers
	code     int           // of the close frame of the server; 0 if there is none
}

// run connects, sends and ends. The error is a mistake of the server.
func (c *stressClient) run(s *server) error {
	if err := c.dial(s); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(clientTimeout))
	if err := c.handshake(); err != nil || c.behavior == badHandshake {
		return err
	}
	if c.behavior == notReading || c.behavior == reset {
		c.sendAll(c.messages())
		return c.reset()
	}
	messages := c.messages()
	read := make(chan error, 1)
	go func() { read <- c.readToEnd() }()
	sent := c.sendAll(messages)
	if sent && c.behavior == patient && c.expected > 0 {
		select {
		case <-c.answered:
		case err := <-read:
			read <- err
		}
	}
	c.complete = sent && c.end()
	err := <-read
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return fmt.Errorf("connection %d, behavior %d: no end of the stream: %w", c.number, c.behavior, err)
	}
	if errors.Is(err, errMessage) {
		return fmt.Errorf("connection %d: %w", c.number, err)
	}
	return nil
}

func (c *stressClient) dial(s *server) (err error) {
	address := s.servers[c.network].Listener.Addr()
	c.Conn, err = net.Dial(address.Network(), address.String())
	if err == nil && c.network == overTLS {
		c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	}
	return err
}

var errRejected = errors.New("the server has rejected the connection")

func (c *stressClient) handshake() error {
	request := fmt.Sprintf("GET /?n=%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", c.number)
	if c.behavior == badHandshake {
		_, _ = io.WriteString(c, request[:c.random.IntN(len(request))])
		return nil
	}
	if _, err := io.WriteString(c, request); err != nil {
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	c.r = bufio.NewReader(c)
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("%w: %s", errRejected, resp.Status)
	}
	return nil
}

// messages encodes what the client sends, in frames.
func (c *stressClient) messages() []byte {
	n := c.random.IntN(40)
	if c.behavior == notReading {
		n = 300
	}
	var b []byte
	for seq := range n {
		kind := []string{"EVENT", "CALL", "SERIAL"}[c.random.IntN(3)]
		c.sent = append(c.sent, kind)
		if kind != "EVENT" {
			c.expected++
		}
		pad := c.random.IntN(200)
		switch c.random.IntN(30) {
		case 0:
			pad = c.random.IntN(60_000)
		case 1, 2:
			pad = c.random.IntN(5000)
		}
		message := fmt.Sprintf(`{"type":%q,"meta":{"correlationId":"%d"},"payload":{"conn":%d,"seq":%d,"pad":%q}}`,
			kind, seq, c.number, seq, strings.Repeat("x", pad))
		b = c.appendMessage(b, message)
		if seq < 50 && c.random.IntN(4) == 0 {
			b = c.appendFrame(b, 0x80|byte(9+c.random.IntN(2)), "sign of life")
		}
	}
	return b
}

// appendMessage encodes a message in one frame or in fragments with pings between.
func (c *stressClient) appendMessage(b []byte, message string) []byte {
	opcode := byte(1 + c.random.IntN(2))
	for c.random.IntN(8) == 0 {
		n := c.random.IntN(len(message) + 1)
		b = c.appendFrame(b, opcode, message[:n])
		opcode, message = 0, message[n:]
		if c.behavior != notReading && c.random.IntN(3) == 0 {
			b = c.appendFrame(b, 0x89, "between")
		}
	}
	return c.appendFrame(b, 0x80|opcode, message)
}

func (c *stressClient) appendFrame(b []byte, first byte, payload string) []byte {
	switch n := len(payload); {
	case n < 126:
		b = append(b, first, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, first, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, first, 0x80|127), uint64(n))
	}
	var key [4]byte
	binary.LittleEndian.PutUint32(key[:], c.random.Uint32())
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// sendAll writes pieces of random lengths, with pauses of random lengths. It reports whether
// everything was written.
func (c *stressClient) sendAll(b []byte) bool {
	most := []int{1 << 20, 4096, 300, 20}[c.random.IntN(4)]
	pauses := 0
	urgent := c.random.IntN(4) == 0
	for len(b) > 0 {
		n := min(len(b), 1+c.random.IntN(most))
		if len(b) > 20_000 {
			n = min(len(b), max(n, 1000))
		}
		if _, err := c.Write(b[:n]); err != nil {
			return false
		}
		b = b[n:]
		if urgent && c.random.IntN(3) == 0 {
			urgent = false // a second one could move the first into the stream
			c.sendUrgent()
		}
		switch p := c.random.IntN(200); {
		case p == 0 && pauses < 2:
			pauses++
			time.Sleep(50 * time.Millisecond)
		case p < 20 && pauses < 20:
			pauses++
			time.Sleep(time.Duration(c.random.IntN(1000)) * time.Microsecond)
		}
	}
	return true
}

// sendUrgent sends a byte of urgent data, which is not part of the stream (RFC 9293, section
// 3.8.5).
func (c *stressClient) sendUrgent() {
	conn, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Write(func(fd uintptr) bool {
			_, err := syscall.SendmsgN(int(fd), []byte{'!'}, nil, nil, syscall.MSG_OOB)
			return !errors.Is(err, syscall.EAGAIN)
		})
	}
}

// end sends what the behavior ends with. It reports whether that was written.
func (c *stressClient) end() bool {
	var b []byte
	switch c.behavior {
	case patient, closeFrame:
		b = c.appendFrame(nil, 0x88, "\x03\xe8")
	case invalidFrame:
		b = [][]byte{
			c.appendFrame(nil, 0x83, "reserved opcode"),
			c.appendFrame(nil, 0xf1, "reserved bits"),
			c.appendFrame(nil, 0x80, "no message"),
			append([]byte{0x81, 5}, "plain"...),
			c.appendFrame(nil, 0x09, "fragmented ping"),
			c.appendFrame(nil, 0x88, "\x03"),
			c.appendFrame(nil, 0x81, "\xff"),
		}[c.random.IntN(7)]
	case halfFrame:
		b = c.appendFrame(nil, 0x81, `{"type":"EVENT","payload":{"conn":-1,"seq":0}}`)
		b = b[:1+c.random.IntN(len(b)-1)]
	}
	if _, err := c.Write(b); err != nil {
		return false
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && (c.behavior == halfClose || c.behavior == halfFrame) {
		return half.CloseWrite() == nil
	}
	return true
}

// reset closes the connection without the end of the stream.
func (c *stressClient) reset() error {
	conn := c.Conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	return nil
}

var errMessage = errors.New("wrong message")

// readToEnd records the answers. The error is the end of the stream, or errMessage.
func (c *stressClient) readToEnd() error {
	frames := wsframe.NewReader(c.r, 1<<20, func([]byte) error { return nil })
	for {
		message, op, err := frames.Append(nil)
		if closed, ok := errors.AsType[*wsframe.CloseError](err); ok {
			return c.closed(closed.Code)
		}
		if err == nil && op == wsframe.Text {
			err = c.answer(message)
		} else if err == nil || errors.Is(err, wsframe.ErrTooBig) || strings.Contains(err.Error(), "not a WebSocket frame") {
			err = fmt.Errorf("%w: opcode %d: %w", errMessage, op, err)
		}
		if err != nil {
			return err
		}
	}
}

// closed records a close frame, which nothing follows.
func (c *stressClient) closed(code int) error {
	if code != wsframe.NoStatus {
		c.code = code
	}
	if len(c.answers) < c.expected {
		close(c.answered) // no more answers will arrive
	}
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		return fmt.Errorf("%w: %q follows the close frame", errMessage, rest)
	}
	return err
}

// answer records a reply or an error.
func (c *stressClient) answer(message []byte) error {
	var m struct {
		Type string
		Meta struct {
			CorrelationID string
		}
		Payload numbered
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return fmt.Errorf("%w: %w: %.200q", errMessage, err, message)
	}
	switch m.Type {
	case "RPC_ERROR", "ERROR":
		c.rejected++
	case "REPLY", "SERIAL_REPLY":
		if m.Payload.Conn != c.number || m.Meta.CorrelationID != fmt.Sprint(m.Payload.Seq) {
			return fmt.Errorf("%w: %.200q", errMessage, message)
		}
		if c.answers[m.Payload.Seq]++; len(c.answers) == c.expected && c.answers[m.Payload.Seq] == 1 {
			close(c.answered)
		}
	default:
		return fmt.Errorf("%w: %.200q", errMessage, message)
	}
	return nil
}
