package router_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// TestConn_IdleHasNoGoroutine also relies on TestMain, which fails if the event loop outlives the
// last connection.
func TestConn_IdleHasNoGoroutine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("connections wait on goroutines except on Linux")
	}
	r := router.New(nil)
	router.RPC(r, echo)
	server := httptest.NewServer(r)
	defer server.Close()
	before := runtime.NumGoroutine()
	const conns = 200
	for range conns {
		conn := dialUpgraded(t, server)
		_, err := conn.Write(text(echoCall))
		require.NoError(t, err)
		_, err = io.ReadFull(conn, make([]byte, 2))
		require.NoError(t, err)
	}
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() < before+conns/10 }, time.Minute, 10*time.Millisecond,
		"a goroutine that has handled messages waits a second for more before it ends")
	assert.Len(t, collect(r), conns)
}

// echoCall is a call that is long enough for text, which encodes at least 126 bytes.
var echoCall = `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}` + strings.Repeat(" ", 64)

func dialUpgraded(t *testing.T, server *httptest.Server) net.Conn {
	addr := server.Listener.Addr()
	conn, err := net.Dial(addr.Network(), addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	handshake(t, conn)
	return conn
}

// TestConn_EndAlongWithMessageEndsHandlerOnce ends connections immediately after a message, so that
// the server may find both in one read.
func TestConn_EndAlongWithMessageEndsHandlerOnce(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"the end of the stream": func(conn net.Conn) { _ = conn.(*net.TCPConn).CloseWrite() },
		"a reset":               func(conn net.Conn) { reset(t, conn) },
	} {
		t.Run(name, func(t *testing.T) {
			var ended atomic.Int64
			r := router.New(nil)
			router.On(r, func(ctx *router.Context, _ Say) error {
				<-ctx.Done()
				ended.Add(1)
				return nil
			})
			server := httptest.NewServer(r)
			defer server.Close()
			message := text(`{"type":"SAY","payload":{"room":"a","text":"b"}}` + strings.Repeat(" ", 100))
			const conns = 200
			for i := range conns {
				conn := dialUpgraded(t, server)
				_, err := conn.Write(message)
				require.NoError(t, err)
				if i%2 == 0 { // the server may have started to read
					runtime.Gosched()
				}
				end(conn)
			}
			assert.Eventually(t, func() bool { return len(collect(r)) == 0 }, time.Minute, time.Millisecond)
			if name != "a reset" { // which may discard the message
				assert.Eventually(t, func() bool { return ended.Load() == conns }, time.Minute, time.Millisecond)
			}
		})
	}
}

// TestConn_MessagesDuringIdleTransitionAreHandled sends messages in pieces of random sizes, so that
// some arrive while the server is about to stop reading.
func TestConn_MessagesDuringIdleTransitionAreHandled(t *testing.T) {
	r := router.New(nil)
	r.UseIngress(func(context.Context, router.IngressContext) error {
		time.Sleep(rand.N(200 * time.Microsecond)) // like a request to a remote limiter
		return nil
	})
	router.RPC(r, echo)
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": t.TempDir() + "/socket"} {
		t.Run(network, func(t *testing.T) {
			listener, err := net.Listen(network, address)
			require.NoError(t, err)
			server := httptest.NewUnstartedServer(r)
			_ = server.Listener.Close()
			server.Listener = listener
			server.Start()
			defer server.Close()
			var wg sync.WaitGroup
			for range 20 {
				conn := dialUpgraded(t, server)
				require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
				wg.Go(func() { exchangeCalls(t, conn) })
			}
			wg.Wait()
		})
	}
}

func exchangeCalls(t *testing.T, conn net.Conn) {
	const calls = 3
	rounds := testscale.Tiers(10, 20, 50)
	answers := bufio.NewReader(conn)
	for range rounds {
		for sent := bytes.Repeat(text(echoCall), calls); len(sent) > 0; {
			n := min(len(sent), rand.IntN(2*len(echoCall))+1)
			_, err := conn.Write(sent[:n])
			assert.NoError(t, err)
			sent = sent[n:]
		}
		for range calls {
			if _, err := answers.ReadSlice(0x81); !assert.NoError(t, err) {
				return
			}
		}
	}
}
