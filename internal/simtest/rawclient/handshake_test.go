package rawclient_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/internal/wsframe"
	"github.com/penstock-go/penstock/router"
)

func TestClient_ReportsAWrongHandshake(t *testing.T) {
	tests := []struct{ want, response string }{
		{"", "HTTP/1.1 401 Unauthorized\r\nContent-Length: 46\r\n\r\n" + `{"code":"UNAUTHENTICATED","retryable":false  }`},
		{"", "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"},
		{"the status 418", "HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n"},
		{"not whole seconds", "HTTP/1.1 503 Busy\r\nRetry-After: 1.5\r\nContent-Length: 0\r\n\r\n"},
		{"malformed", "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}"},
		{"wrong Sec-WebSocket-Accept", "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n"},
		{"was not offered", "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: KEY\r\nSec-WebSocket-Protocol: x\r\n\r\n"},
		{"was not offered", "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: KEY\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			var v violations
			once := true
			c := rawclient.New(rawclient.Config{
				Dial: func(context.Context) (net.Conn, error) {
					if !once {
						return nil, errors.New("the test has seen enough")
					}
					once = false
					client, server := net.Pipe()
					go serve(server, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						conn, _, _ := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // helpers_test.go
						_, _ = io.WriteString(conn, strings.ReplaceAll(test.response, "KEY", wsframe.AcceptKey(r.Header.Get("Sec-WebSocket-Key"))))
						_ = conn.Close()
					}))
					return client, nil
				},
				Rand: rand.New(rand.NewPCG(1, 2)), Report: v.report, //nolint:gosec // a test
			})
			synctest.Wait()
			c.Close(1000)
			if test.want == "" {
				assert.Empty(t, v.list())
			} else if assert.Len(t, v.list(), 1, test.want) {
				assert.Contains(t, v.list()[0], test.want)
			}
		})
	}
}

func TestClient_LosesItsSessionWhileItIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		var away atomic.Bool
		c := newClient(t, r, "ann", func(cfg *rawclient.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (net.Conn, error) {
				if away.Load() {
					return nil, errors.New("the network is gone")
				}
				return dial(ctx)
			}
		})
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{Positions: true})
		c.Event("ENTER", enter{"private/a"}, false)
		synctest.Wait()
		lost := c.Call("SLOW", slow{60_000}, rawclient.CallOptions{})
		first, _ := c.Session()
		away.Store(true)
		c.Drop(0, -1)
		publish(t, r, "feed/a", "a", "b")
		time.Sleep(3 * time.Minute)
		away.Store(false)
		time.Sleep(time.Minute)
		second, ok := c.Session()
		assert.True(t, ok && first != second)
		assert.True(t, c.Outcome(lost).Lost)
		assert.Equal(t, []string{"a", "b"}, received(c, "feed/a"))
		assert.False(t, c.Topic("private/a").Subscribed)
		c.Quiet()
	})
}

func TestClient_StopsWhereTheCodeIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		_, err := r.DisconnectUser("t", "ann", router.StatusPermissionDenied, "bye")
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Len(t, notices(c, "open"), 1)
		if stops := notices(c, "stop"); assert.Len(t, stops, 1) {
			assert.Equal(t, 4403, stops[0].Code)
		}
	})
}

func TestClient_NoticesASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		silent := make(chan struct{})
		c := newClient(t, r, "ann", func(cfg *rawclient.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (net.Conn, error) {
				conn, err := dial(ctx)
				return &stalled{Conn: conn, from: silent}, err
			}
		})
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		assert.Len(t, notices(c, "open"), 1, "pings keep an idle connection")
		close(silent)
		time.Sleep(time.Minute)
		assert.Greater(t, len(notices(c, "close")), 0)
	})
}

// stalled is a connection that discards what arrives once from is closed.
type stalled struct {
	net.Conn

	from chan struct{}
}

func (s *stalled) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		select {
		case <-s.from:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}
