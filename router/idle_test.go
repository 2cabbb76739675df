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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
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

// TestConn_MessagesDuringIdleTransitionAreHandled sends messages in pieces of random sizes, so that
// some arrive while the server is about to stop reading.
func TestConn_MessagesDuringIdleTransitionAreHandled(t *testing.T) {
	r := router.New(nil)
	r.UseIngress(func(context.Context, router.IngressContext) error {
		time.Sleep(rand.N(200 * time.Microsecond)) // like a request to a remote limiter
		return nil
	})
	router.RPC(r, echo)
	server := newTestServer(t, r)
	var wg sync.WaitGroup
	for range 20 {
		conn := dialUpgraded(t, server)
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		wg.Go(func() { exchangeCalls(t, conn) })
	}
	wg.Wait()
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

// TestTimeouts_PongInTheInstantOfItsPingCounts has a clock that stands still between a ping and its pong.
func TestTimeouts_PongInTheInstantOfItsPingCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Ping: 5 * time.Second, Pong: 25 * time.Second}}))
		router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), nil })
		c := routertest.Dial(t, r)
		time.Sleep(2 * time.Minute)
		routertest.Call[Echoed](c, Echo{})
	})
}
