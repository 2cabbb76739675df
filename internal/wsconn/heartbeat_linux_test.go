//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestConnRTT_OnEventLoopsIsFromPingToTheArrivalOfItsPong has a handler that blocks while it has the right to read. The
// pong is behind its message: first in the same chunk, and then in one that nobody reads meanwhile.
func TestConnRTT_OnEventLoopsIsFromPingToTheArrivalOfItsPong(t *testing.T) {
	const delay = 20 * time.Millisecond
	message, answer := clientFrame(fin|text, "x"), clientFrame(fin|pong, "")
	for name, secure := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			conns := make(chan *wsconn.Conn, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := &inlineHandler{noopHandler: newHandler(), ended: func() {}}
				h.answer = func(msg wsconn.Message) string {
					entered <- struct{}{}
					<-leave
					return echoOf(msg)
				}
				var err error
				h.conn, err = wsconn.Accept(w, r, "", options(), h)
				assert.NoError(t, err)
				conns <- h.conn
				go h.Serve()
			}))
			if secure {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			client := dialPeer(t, server.Listener.Addr().String(), secure, "")
			defer func() { _ = client.Close() }()
			c := <-conns
			require.Equal(t, secure, wsconn.Watched(c))
			pinged := func() time.Time {
				awaitIdle(t, c)
				begun := time.Now()
				wsconn.PingSilent(c)
				requireFrame(t, client, serverFrame{fin | ping, ""})
				return begun
			}
			write := func(frames ...[]byte) {
				_, err := client.Write(slices.Concat(frames...))
				require.NoError(t, err)
			}

			begun := pinged()
			time.Sleep(delay)
			write(message, answer)
			<-entered
			arrived := time.Since(begun)
			time.Sleep(arrived) // RTT would be longer than that
			leave <- struct{}{}
			requireNext(t, client, "x")
			awaitIdle(t, c)
			rtt := c.RTT()
			assert.GreaterOrEqual(t, rtt, delay)
			assert.LessOrEqual(t, rtt, arrived)

			for range 10 {
				pinged()
				write(message)
				<-entered
				write(answer)
				leave <- struct{}{}
				requireNext(t, client, "x")
				awaitIdle(t, c)
				assert.Equal(t, rtt, c.RTT())
			}

			begun = pinged()
			write(answer)
			require.Eventually(t, func() bool { return c.RTT() != rtt }, 10*time.Second, time.Millisecond)
			assert.LessOrEqual(t, c.RTT(), time.Since(begun))
		})
	}
}

func requireFrame(t *testing.T, p *peer, want serverFrame) {
	t.Helper()
	got, err := p.read()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
