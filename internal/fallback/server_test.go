package fallback_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

func TestServer_Header(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Origins: []string{"https://app.example"}})
		client := newClient(t, r.HTTPFallback(nil))
		for _, origin := range []string{"", "https://app.example", "https://evil.example"} {
			for _, request := range []struct {
				method, query string
				want, foreign int
			}{
				{http.MethodGet, "", http.StatusNoContent, http.StatusNoContent},
				{http.MethodHead, "", http.StatusNoContent, http.StatusNoContent},
				{http.MethodPut, "", http.StatusMethodNotAllowed, http.StatusMethodNotAllowed},
				{http.MethodPost, "", http.StatusBadRequest, http.StatusForbidden},
				{http.MethodPost, "?open", http.StatusBadRequest, http.StatusBadRequest},
				{http.MethodPost, "?down", http.StatusBadRequest, http.StatusForbidden},
				{http.MethodPost, "?up", http.StatusBadRequest, http.StatusForbidden},
			} {
				req := must(http.NewRequestWithContext(t.Context(), request.method, client.url+request.query, nil))
				if origin != "" {
					req.Header.Set("Origin", origin)
				}
				resp := must(client.do(req))
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, "no-store, no-transform", resp.Header.Get("Cache-Control"))
				assert.Equal(t, "1", resp.Header.Get("Penstock-Fallback"))
				assert.Equal(t, "Origin", resp.Header.Get("Vary"))
				if origin == "https://evil.example" {
					assert.Equal(t, request.foreign, resp.StatusCode, request)
					assert.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
					continue
				}
				assert.Equal(t, request.want, resp.StatusCode, request)
				assert.Equal(t, origin, resp.Header.Get("Access-Control-Allow-Origin"))
				assert.Equal(t, origin, resp.Header.Get("Timing-Allow-Origin"))
				if origin != "" {
					assert.Equal(t, "true", resp.Header.Get("Access-Control-Allow-Credentials"))
					assert.Equal(t, "Penstock-Fallback, Retry-After", resp.Header.Get("Access-Control-Expose-Headers"))
				}
			}
		}
	})
}

// TestProbe_SendsTwoMessages has the client of another library.
func TestProbe_SendsTwoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Authenticate: func(*http.Request) (router.Identity, error) { panic("not called") }})
		address := "192.0.2.1:1"
		http1 := newClient(t, withAddress(r.HTTPFallback(nil), &address))
		dial := func(origin string) (*websocket.Conn, *http.Response, error) {
			return websocket.Dial(t.Context(), http1.url, &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: roundTripper(http1.do)}, HTTPHeader: http.Header{"Origin": {origin}},
			})
		}
		ws, _, err := dial("http://example.com")
		require.NoError(t, err)
		start := time.Now()
		for i, want := range []string{"0", "1"} {
			_, text, err := ws.Read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, string(text))
			assert.Equal(t, time.Duration(i)*3*time.Second, time.Since(start))
		}
		_, _, err = ws.Read(t.Context())
		assert.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
		_, resp, err := dial("https://evil.example")
		require.Error(t, err)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode)
		assert.Empty(t, collect(r))

		for range 128 { // all that one address may have
			ws, _, err := dial("http://example.com")
			require.NoError(t, err)
			defer ws.CloseNow()
		}
		_, resp, err = dial("http://example.com")
		require.Error(t, err)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
