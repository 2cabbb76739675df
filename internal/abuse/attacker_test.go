//go:build unix && !race

package abuse_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An attacker has the connections of one row of the table. It keeps nothing but them, and uses little
// CPU time: it writes many messages at once, and searches what it receives for single texts.
type attacker struct {
	t        *testing.T
	addr     string
	buffer   [64 << 10]byte
	sent     int // bytes
	received int // bytes
}

// A peer is a connection of an attacker.
type peer struct {
	*attacker

	conn    net.Conn
	pending []byte // to be written
}

// dial opens a TCP connection, which is closed with the test.
func (a *attacker) dial() *peer {
	conn, err := net.Dial("tcp", a.addr)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(a.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &peer{attacker: a, conn: conn}
}

// connect opens a WebSocket for a user.
func (a *attacker) connect(user string) *peer {
	p := a.dial()
	p.pending = handshake(user)
	p.await("\r\n\r\n", 1)
	return p
}

// handshake returns a request for a WebSocket, as short as possible.
func handshake(user string) []byte {
	return fmt.Appendf(nil, "GET /?access_token=%s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", user)
}

// add adds text messages to what the next await writes.
func (p *peer) add(messages ...string) {
	for _, m := range messages {
		p.addFrame(0x81, m)
	}
}

// addFrame adds a frame with a first byte (RFC 6455, section 5.2). Its masking key is zero.
func (p *peer) addFrame(first byte, payload string) {
	b := append(p.pending, first)
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	p.pending = append(append(b, 0, 0, 0, 0), payload...)
}

// await writes what was added, and reads until a text has occurred n times.
func (p *peer) await(text string, n int) {
	p.t.Helper()
	p.write()
	var kept []byte // the end of what was read before: it may be the beginning of the text
	for n > 0 {
		read, err := p.conn.Read(p.buffer[:])
		p.received += read
		kept = append(kept, p.buffer[:read]...)
		n -= bytes.Count(kept, []byte(text))
		require.NoError(p.t, err, "%q is missing %d times after %q", text, n, kept[max(0, len(kept)-1000):])
		if at := bytes.LastIndex(kept, []byte(text)); at >= 0 {
			kept = kept[at+len(text):]
		}
		kept = bytes.Clone(kept[max(0, len(kept)-len(text)):])
	}
}

func (p *peer) write() {
	n, err := p.conn.Write(p.pending)
	require.NoError(p.t, err)
	p.sent += n
	p.pending = nil
}

// finish waits until the server has handled everything that was added.
func (p *peer) finish() {
	p.add(`{"type":"LAST","meta":{"correlationId":"last"}}`)
	p.await(`"correlationId":"last"`, 1)
}

// awaitEnd reads until the server closes the connection.
func (p *peer) awaitEnd() {
	p.write()
	for {
		n, err := p.conn.Read(p.buffer[:])
		p.received += n
		if err != nil {
			return
		}
	}
}
