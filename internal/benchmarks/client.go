package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Bits of the first byte of a frame (RFC 6455, section 5.2).
const (
	fin  = 0x80
	rsv1 = 0x40 // the message is compressed (RFC 7692, section 6)
)

// A client is a minimal WebSocket client. It uses little CPU, so that the server limits the throughput.
type client struct {
	conn net.Conn
	r    *bufio.Reader

	compressed bool // the message that is being read
}

// dial opens a connection to a server and sends the contender's hello request.
func dial(p *process, c contender) (*client, error) {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	if p.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: p.sessions}) //nolint:gosec // the certificate is made for this run
	}
	cl := &client{conn: conn, r: bufio.NewReaderSize(conn, 4096)}
	if _, err := io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: "+p.addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+p.offer()+"\r\n"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(cl.r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("%s: %s", c.name, resp.Status)
	}
	if err := p.accepts(resp.Header); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if c.hello == "" {
		return cl, nil
	}
	if _, err := conn.Write(masked(c.hello)); err != nil {
		return nil, err
	}
	return cl, cl.await(1)
}

func (c *client) close() { _ = c.conn.Close() }

// masked encodes a client's text frame with a masking key of zeros.
func masked(text string) []byte { return maskedFrame(0x81, text) }

func maskedFrame(first byte, text string) []byte {
	n := len(text)
	frame := []byte{first}
	if n < 126 {
		frame = append(frame, 0x80|byte(n))
	} else {
		frame = append(frame, 0x80|126, byte(n>>8), byte(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	return append(frame, text...)
}

// await reads until at least n messages have arrived.
func (c *client) await(n int) error {
	for n > 0 {
		got, err := c.next()
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// next reads one frame and returns its number of messages. Some servers send several messages in one
// frame, separated by newlines.
func (c *client) next() (int, error) {
	first, n, err := c.header()
	if err != nil {
		return 0, err
	}
	op := first & 0x0f
	if op == 9 {
		if _, err := c.conn.Write([]byte{0x8a, 0x80, 0, 0, 0, 0}); err != nil { // a pong without payload
			return 0, err
		}
	}
	messages := 0
	if op < 8 && first&fin != 0 {
		messages = 1
	}
	for n > 0 {
		p, err := c.r.Peek(min(n, c.r.Buffered()+1, 4096))
		if err != nil {
			return 0, err
		}
		p = p[:min(n, c.r.Buffered(), len(p))]
		if bytes.HasPrefix(p, []byte(`{"type":"RPC_ERROR"`)) {
			return 0, fmt.Errorf("the server replied %s", p)
		}
		if messages > 0 && !c.compressed {
			messages += bytes.Count(p, []byte{'\n'})
		}
		if op == 8 {
			return 0, fmt.Errorf("the server closed the connection: %x", p)
		}
		n -= len(p)
		if _, err := c.r.Discard(len(p)); err != nil {
			return 0, err
		}
	}
	if op == 8 {
		return 0, io.EOF
	}
	return messages, nil
}

// header reads the header of a frame, and returns its first byte and the length of its payload.
func (c *client) header() (first byte, n int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:2]); err != nil {
		return 0, 0, err
	}
	n = int(head[1])
	switch n {
	case 126:
		if _, err := io.ReadFull(c.r, head[2:]); err != nil {
			return 0, 0, err
		}
		n = int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		return 0, 0, fmt.Errorf("frame is longer than 64 KiB")
	}
	if op := head[0] & 0x0f; op == 1 || op == 2 {
		c.compressed = head[0]&rsv1 != 0
	}
	return head[0], n, nil
}

// message reads the frames of one message, among which are no control frames.
func (c *client) message() ([]byte, error) {
	var message []byte
	for {
		first, n, err := c.header()
		if err != nil {
			return nil, err
		}
		part := make([]byte, n)
		if _, err := io.ReadFull(c.r, part); err != nil {
			return nil, err
		}
		message = append(message, part...)
		if first&fin != 0 {
			return message, nil
		}
	}
}

// Requests are the encoded requests of all clients of a measurement, one behind the other, so that a
// client writes a burst without composing it.
type requests struct {
	frames []byte
	starts []int // of each frame, and the end of the last one
	next   int
}

// distinct is the number of different requests. The default is larger than the cache of any server.
var distinct = 4096

// newRequests returns requests for bursts of at most window. encode makes a frame of a text.
func newRequests(c contender, window int, encode func(text string) []byte) requests {
	r := requests{starts: []int{0}}
	for n := range distinct + window {
		r.frames = append(r.frames, encode(c.request(n))...)
		r.starts = append(r.starts, len(r.frames))
	}
	return r
}

// from returns the requests of the nth client. They begin elsewhere than those of the others.
func (r requests) from(n int) requests {
	r.next = n * 61 % distinct
	return r
}

// burst returns the next n frames.
func (r *requests) burst(n int) []byte {
	at := r.next
	r.next = (r.next + n) % distinct
	return r.frames[r.starts[at]:r.starts[at+n]]
}

// flood keeps window requests in flight until stopped returns true, and passes the number of
// replies to count.
func (c *client) flood(requests requests, window int, count func(int), stopped func() bool) error {
	if _, err := c.conn.Write(requests.burst(window)); err != nil {
		return err
	}
	for {
		replies, err := c.next()
		if err != nil {
			return err
		}
		for c.r.Buffered() > 2 && replies < window {
			more, err := c.next()
			if err != nil {
				return err
			}
			replies += more
		}
		count(replies)
		if stopped() {
			return nil
		}
		if _, err := c.conn.Write(requests.burst(min(replies, window))); err != nil {
			return err
		}
	}
}
