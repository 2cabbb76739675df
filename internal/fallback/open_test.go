package fallback_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

// TestOpen_AuthenticateReceivesHandshake checks the request that the application sees.
func TestOpen_AuthenticateReceivesHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := make(chan *http.Request, 1)
		r := router.New(&router.Options{Subprotocols: []string{"chat.v1"}, Authenticate: func(req *http.Request) (router.Identity, error) {
			requests <- req.Clone(req.Context())
			return router.Identity{UserID: router.Token(req)}, nil
		}})
		client := newClient(t, r.HTTPFallback(nil))
		client.header.Set("Cookie", "a=b")
		client.header.Set("Sec-WebSocket-Extensions", "permessage-deflate")
		client.header.Set("Sec-WebSocket-Protocol", "x")
		events := client.openWith(`{"protocols":["bearer.abc","chat.v1"],"query":"q=1&r=%20","mode":"stream"}`)
		defer events.close()
		opened := must(events.next())
		assert.Contains(t, opened.data, `"protocol":"chat.v1"`)
		req := <-requests
		assert.Equal(t, http.MethodGet, req.Method)
		assert.Equal(t, "/ws/http?q=1&r=%20", req.RequestURI)
		assert.Equal(t, "1", req.FormValue("q"))
		assert.Equal(t, "example.com", req.Host)
		assert.Equal(t, "a=b", req.Header.Get("Cookie"))
		assert.Equal(t, "bearer.abc, chat.v1", req.Header.Get("Sec-WebSocket-Protocol"))
		assert.Empty(t, req.Header.Get("Sec-WebSocket-Extensions"))
		assert.Empty(t, req.Header.Get("Content-Type"))
		assert.Zero(t, req.ContentLength)
		assert.Equal(t, "abc", onlyConn(t, r).Identity().UserID)
	})
}

// TestOpen_CodecsAreNotSelected has a client that offers a binary format.
func TestOpen_CodecsAreNotSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := router.New(&router.Options{Codecs: []router.Codec{codec}, Subprotocols: []string{"chat.v1"}})
		router.RPC(r, echo)
		client := newClient(t, r.HTTPFallback(nil))
		events := client.openWith(`{"protocols":["` + codec.Subprotocol() + `","chat.v1"],"mode":"stream"}`)
		defer events.close()
		assert.Contains(t, must(events.next()).data, `"protocol":"chat.v1"`)
	})
}

// TestOpen_RefusalsAreCloseEvents checks that a client learns what Options.RefuseAfterUpgrade would send.
func TestOpen_RefusalsAreCloseEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		opts   router.Options
		origin string
		want   string
	}{
		"authentication": {opts: router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{}, errors.Errorf(errors.Unauthenticated, "log in first")
		}}, want: `{"code":4401,"reason":"{\"code\":\"UNAUTHENTICATED\",\"message\":\"log in first\"}"}`},
		"origin": {origin: "https://evil.example", want: `{"code":4403`},
		"panic": {opts: router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			panic("mistake")
		}, OnError: func(router.ErrorReport) {}}, want: `{"code":4500`},
	} {
		for _, mode := range []string{"stream", "poll"} {
			runSynctest(t, name+"/"+mode, func(t *testing.T) {
				refused := &recorder[observe.Event]{}
				r := router.New(&tt.opts)
				r.Observe(func(e observe.Event) {
					if e.Kind == observe.Refused {
						refused.add(e)
					}
				})
				client := newClient(t, r.HTTPFallback(&router.FallbackOptions{MaxConns: 1}))
				if tt.origin != "" {
					client.header.Set("Origin", tt.origin)
				}
				for range 3 { // a refused one has no slot
					events := client.openWith(`{"mode":"` + mode + `"}`)
					e := must(events.next())
					assert.Equal(t, "close", e.name)
					assert.EqualValues(t, 1, e.id)
					assert.Contains(t, e.data, tt.want)
					_, err := events.next()
					require.Error(t, err)
					events.close()
				}
				assert.Len(t, refused.all(), 3)
				assert.Empty(t, collect(r))
			})
		}
	}
}

// TestOpen_CountsInLimits fills the slots of the fallback, and those of the router.
func TestOpen_CountsInLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{ConnsPerIP: 2}})
		h := r.HTTPFallback(&router.FallbackOptions{MaxConns: 5})
		address := "192.0.2.1:1"
		client := newClient(t, withAddress(h, &address))
		for range 2 {
			defer client.open("stream").close()
		}
		assert.Contains(t, must(client.openWith(`{"mode":"poll"}`).next()).data, `"code":4429`)
		for i := range 3 {
			address = fmt.Sprintf("198.51.100.%d:1", i)
			client.open("poll").close()
		}
		client.refusedSlot()
		time.Sleep(11 * time.Second) // the last ones have no response
		client.open("stream").close()
	})
}

// refusedSlot opens a connection for which the server has no room.
func (c *client) refusedSlot() {
	c.t.Helper()
	resp := c.post("open", `{"mode":"poll"}`)
	assert.Equal(c.t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(c.t, "1", resp.Header.Get("Retry-After"))
	require.NoError(c.t, resp.Body.Close())
}

// TestOpen_OneAddressGetsHalfOfTheSlots opens polls from the addresses of one IPv6 network, with the default limits.
func TestOpen_OneAddressGetsHalfOfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		address := ""
		client := newClient(t, withAddress(r.HTTPFallback(nil), &address))
		for i := range 500 {
			address = fmt.Sprintf("[2001:db8::%x]:1", i)
			client.open("poll").close()
		}
		client.refusedSlot()
		address = "192.0.2.1:1"
		client.open("poll").close()
	})
}

// TestOpen_EndedConnectionsCountForTheirAddress has an address whose connections the server closes, one after the other:
// those that its client has not acknowledged count, and then Limits.ConnsPerIP is not what refuses further ones.
func TestOpen_EndedConnectionsCountForTheirAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{ConnsPerIP: 4}})
		address := "192.0.2.1:1"
		client := newClient(t, withAddress(r.HTTPFallback(&router.FallbackOptions{MaxConns: 100}), &address))
		end := func() {
			client.open("poll").close()
			onlyConn(t, r).Close(4001, "done")
			synctest.Wait()
		}
		for range 8 {
			end()
		}
		client.refusedSlot()
		client.ack = 1
		require.Equal(t, http.StatusNoContent, client.acknowledge())
		client.ack = 0
		end()
		client.refusedSlot()
		address = "192.0.2.2:1"
		end()
		address = "192.0.2.1:1"
		time.Sleep(11 * time.Second)
		end()
	})
}

// TestOpen_UnknownAddressesHaveNoShare has clients behind a Unix socket, all of which have no address.
func TestOpen_UnknownAddressesHaveNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		client := newClient(t, r.HTTPFallback(&router.FallbackOptions{MaxConns: 4}))
		for range 4 {
			client.open("poll").close()
		}
		client.refusedSlot()
	})
}

func TestOpen_MalformedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		client := newClient(t, r.HTTPFallback(nil))
		for _, body := range []string{
			"", "{}", `{"mode":"push"}`, `{"mode":"stream","protocols":["a b"]}`, `{"mode":"stream","protocols":["a\r\nX: y"]}`, `{"mode":"stream","protocols":"a"}`,
			`{"mode":"stream","query":"a b"}`, `{"mode":"stream","query":"a\nb"}`, `{"mode":"stream","query":"a#b"}`, `{"mode":"stream","query":"\u00e9"}`,
			`{"mode":"stream"} {}`,
		} {
			assert.Equal(t, http.StatusBadRequest, client.status("open", body), body)
		}
		assert.Equal(t, http.StatusRequestEntityTooLarge, client.status("open", `{"mode":"stream","query":"`+strings.Repeat("a", 20_000)+`"}`))
	})
}
