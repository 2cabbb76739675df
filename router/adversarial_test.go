package router_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// An adversarialServer is a server with short timeouts.
type adversarialServer struct {
	*httptest.Server
	router *router.Router
	closed chan router.CloseError // of connections that have ended
	open   atomic.Int64           // connections that the HTTP server still owns
}

// adversarialTimeouts are those that a test waits for. The others are long, so that a busy machine
// does not exceed them.
type adversarialTimeouts struct {
	handshake, message time.Duration
	ping               time.Duration // and half of it for the pong
}

// newAdversarialServer starts a server that echoes Say until the send queue is full.
func newAdversarialServer(t *testing.T, secure bool, timeouts adversarialTimeouts) *adversarialServer {
	ping := cmp.Or(timeouts.ping, longTimeout)
	v := &adversarialServer{closed: make(chan router.CloseError, 100)}
	v.router = router.New(&router.Options{
		Limits: router.Limits{QueueBytes: 1 << 20},
		Timeouts: router.Timeouts{
			Message: cmp.Or(timeouts.message, longTimeout),
			Ping:    ping,
			Pong:    min(ping/2, 300*time.Millisecond),
		},
		OnClose: func(_ *router.Conn, end router.CloseError) { v.closed <- end },
	})
	router.On(v.router, func(ctx *router.Context, m Say) error {
		for ctx.Send(m) == nil {
			continue
		}
		return nil
	})
	router.RPC(v.router, echo)
	v.Server = httptest.NewUnstartedServer(v.router)
	v.Config.ReadHeaderTimeout = cmp.Or(timeouts.handshake, longTimeout)
	v.Config.ErrorLog = log.New(io.Discard, "", 0)
	v.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			v.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			v.open.Add(-1)
		}
	}
	if secure {
		v.TLS = testcert.ServerConfig()
		v.StartTLS()
	} else {
		v.Start()
	}
	t.Cleanup(v.Close)
	return v
}

func (v *adversarialServer) dial(t *testing.T) net.Conn {
	conn, err := net.Dial("tcp", v.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096)) // so that it fills up quickly
	if v.TLS != nil {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn
}

// longTimeout is longer than every other timeout of these tests.
const longTimeout = 40 * time.Second

const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

func (v *adversarialServer) upgrade(t *testing.T) net.Conn {
	conn := v.dial(t)
	handshake(t, conn)
	return conn
}

func handshake(t *testing.T, conn net.Conn) {
	_, err := io.WriteString(conn, upgrade)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
}

// text encodes a text frame of 126 to 65535 bytes with a zero mask.
func text(payload string) []byte {
	n := len(payload)
	return append([]byte{0x81, 0x80 | 126, byte(n >> 8), byte(n), 0, 0, 0, 0}, payload...)
}

// waitClosed waits for a connection to end and returns its close code.
func (v *adversarialServer) waitClosed(t *testing.T) router.StatusCode {
	t.Helper()
	select {
	case end := <-v.closed:
		return end.Code
	case <-time.After(time.Minute):
		t.Fatal("the connection has not ended")
		return 0
	}
}

// TestAdversarial_ResetAfterEveryByteEndsConnection resets connections after every byte of a
// conversation and after every eighth byte of the handshake.
func TestAdversarial_ResetAfterEveryByteEndsConnection(t *testing.T) {
	v := newAdversarialServer(t, false, adversarialTimeouts{})
	call := text(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}` + strings.Repeat(" ", 64))
	fragments := []byte{0x01, 0x81, 0, 0, 0, 0, '{', 0x89, 0x80, 0, 0, 0, 0, 0x80, 0x81, 0, 0, 0, 0, '}'}
	closeFrame := []byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8}
	conversation := slices.Concat(call, fragments, call, closeFrame)
	for n := range len(upgrade) / 8 {
		conn := v.dial(t)
		_, err := io.WriteString(conn, upgrade[:8*n])
		require.NoError(t, err)
		reset(t, conn)
	}
	for n := range len(conversation) + 1 {
		conn := v.upgrade(t)
		_, err := conn.Write(conversation[:n])
		require.NoError(t, err)
		if n > len(call) {
			_, _ = conn.Read(make([]byte, 1)) // the answer has started to arrive
		}
		reset(t, conn)
	}
	for range len(conversation) + 1 {
		v.waitClosed(t)
	}
	assert.Empty(t, slices.Collect(v.router.Conns()))
	assert.Eventually(t, func() bool { return v.open.Load() == 0 }, time.Minute, time.Millisecond)
}

func reset(t *testing.T, conn net.Conn) {
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	_ = conn.Close()
}

func TestAdversarial_SlowHandshakeIsClosed(t *testing.T) {
	v := newAdversarialServer(t, false, adversarialTimeouts{handshake: 200 * time.Millisecond})
	conn := v.dial(t)
	go trickle(conn, []byte(upgrade))
	_, err := io.ReadAll(conn)
	if err != nil {
		require.ErrorContains(t, err, "reset")
	}
	assert.Eventually(t, func() bool { return v.open.Load() == 0 }, time.Minute, time.Millisecond)
}

// trickle writes one byte at a time, like a slowloris attack.
func trickle(conn net.Conn, p []byte) {
	for i := range p {
		if _, err := conn.Write(p[i : i+1]); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAdversarial_PeersAreDisconnected(t *testing.T) {
	t.Parallel()
	flood := slices.Concat(slices.Repeat([][]byte{{0x89, 0x80, 0, 0, 0, 0}}, 1000)...)
	for name, tt := range map[string]struct {
		send func(conn net.Conn)
		code router.StatusCode
	}{
		"a message byte by byte": {func(conn net.Conn) {
			trickle(conn, text(strings.Repeat(" ", 200)))
		}, router.StatusPolicyViolation},
		"an incomplete message": {func(conn net.Conn) {
			_, _ = conn.Write(text(strings.Repeat(" ", 200))[:100])
		}, router.StatusPolicyViolation},
		"an incomplete frame header": {func(conn net.Conn) {
			_, _ = conn.Write([]byte{0x81})
		}, router.StatusPolicyViolation},
		"a silent peer": {func(net.Conn) {}, router.StatusAbnormal},
		"a flood of pings": {func(conn net.Conn) {
			_, _ = conn.Write(flood)
		}, router.StatusPolicyViolation},
		"a peer that never reads": {func(conn net.Conn) {
			_, _ = conn.Write(text(`{"type":"SAY","payload":{"room":"a","text":"` + strings.Repeat("x", 10_000) + `"}}`))
		}, router.StatusTryAgainLater},
		"a peer that neither reads nor answers pings": {func(conn net.Conn) {
			for { // exceeds the socket buffers of the kernel
				if _, err := conn.Write(text(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}` + strings.Repeat(" ", 1000))); err != nil {
					return
				}
			}
		}, 0},
	} {
		for _, secure := range []bool{false, true} {
			if tt.code == 0 && !secure && !testscale.Pick(false, true) {
				continue // it ends after Timeouts.Message
			}
			t.Run(name+map[bool]string{true: " over TLS"}[secure], func(t *testing.T) {
				t.Parallel()
				var timeouts adversarialTimeouts
				switch tt.code {
				case router.StatusPolicyViolation:
					timeouts.message = 200 * time.Millisecond
				case router.StatusAbnormal:
					timeouts.ping = 200 * time.Millisecond // no other timeout ends it
				case 0:
					timeouts.message = 10 * time.Second
					timeouts.ping = time.Second // with full buffers the peer's kernel may drop acknowledgments, so only the ping ends it
				}
				v := newAdversarialServer(t, secure, timeouts)
				conn := v.upgrade(t)
				go tt.send(conn)
				code := v.waitClosed(t)
				if tt.code != 0 {
					assert.Equal(t, tt.code, code)
				}
				assert.Empty(t, slices.Collect(v.router.Conns()))
			})
		}
	}
}

// TestAdversarial_UnreadMessagesUseBoundedMemory connects a hundred clients that request more data
// than they read.
func TestAdversarial_UnreadMessagesUseBoundedMemory(t *testing.T) {
	v := newAdversarialServer(t, false, adversarialTimeouts{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, 100)
	for i := range conns {
		conns[i] = v.upgrade(t)
	}
	for _, conn := range conns {
		_, err := conn.Write(text(`{"type":"SAY","payload":{"room":"a","text":"` + strings.Repeat("x", 10_000) + `"}}`))
		require.NoError(t, err)
	}
	for range conns {
		v.waitClosed(t)
	}
	runtime.GC()
	runtime.GC() // the first collection keeps what sync.Pool holds
	runtime.ReadMemStats(&after)
	assert.Less(t, after.Sys-before.Sys, uint64(400<<20), "a hundred queues at 1 MiB, doubled for buffers and again for the garbage collector")
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(40<<20), "heap after all connections have ended, whose queues were 100 MiB")
}
