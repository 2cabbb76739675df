package aisdk_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

func TestNew_RejectsOptions(t *testing.T) {
	r := router.New(nil)
	rs := run.New[aisdk.Chunk](r, "answer/{chat}", nil)
	valid := aisdk.Options{
		Authorize: authorize, Answer: follow,
		Topic: func(_ router.Identity, chat string) string { return "answer/" + chat },
	}
	for name, change := range map[string]func(*aisdk.Options){
		"no Authorize":       func(o *aisdk.Options) { o.Authorize = nil },
		"no Topic":           func(o *aisdk.Options) { o.Topic = nil },
		"no Answer":          func(o *aisdk.Options) { o.Answer = nil },
		"a negative limit":   func(o *aisdk.Options) { o.Limits.Requests = -1 },
		"a negative time":    func(o *aisdk.Options) { o.PingInterval = -1 },
		"an invalid origin":  func(o *aisdk.Options) { o.Origins = []string{"example.com"} },
		"an untrusted proxy": func(o *aisdk.Options) { o.TrustedProxies.Header = 99 },
	} {
		opts := valid
		change(&opts)
		assert.Panics(t, func() { aisdk.New(r, rs, &opts) }, name)
	}
	assert.Panics(t, func() { aisdk.New(r, rs, nil) })
	const noRouter = "aisdk: the router or the runs are nil; create them with router.New and run.New"
	assert.PanicsWithValue(t, noRouter, func() { aisdk.New(nil, rs, nil) })
	assert.PanicsWithValue(t, noRouter, func() { aisdk.New(r, nil, nil) })
	assert.NotPanics(t, func() { aisdk.New(r, rs, &valid) })
}

// TestHandshake_IsRefused with an HTTP status and the error as JSON.
func TestHandshake_IsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{
			Origins: []string{"https://app.example"},
			Authenticate: func(req *http.Request) (router.Identity, error) {
				switch user := req.URL.Query().Get("user"); user {
				case "":
					return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no user")
				case "busy":
					return router.Identity{}, &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
				case "expired":
					return router.Identity{UserID: user, ExpiresAt: time.Now()}, nil
				case "broken":
					return router.Identity{}, errors.New("secret")
				default:
					return router.Identity{UserID: user}, nil
				}
			},
		})[0]
		refused := func(query string, header http.Header, status int) (e protocol.ErrorPayload) {
			_, resp, err := dial(t, n.handler, query, header)
			require.Error(t, err)
			require.NotNil(t, resp)
			assert.Equal(t, status, resp.StatusCode, query)
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&e))
			return e
		}
		other := http.Header{"Origin": {"https://other.example"}}
		assert.Equal(t, errors.PermissionDenied, refused("user=ann", other, http.StatusForbidden).Code)
		assert.Equal(t, "no user", refused("", nil, http.StatusUnauthorized).Message)
		assert.Equal(t, errors.ResourceExhausted, refused("user=busy", nil, http.StatusTooManyRequests).Code)
		assert.Equal(t, errors.Unauthenticated, refused("user=expired", nil, http.StatusUnauthorized).Code)
		assert.NotContains(t, refused("user=broken", nil, http.StatusInternalServerError).Message, "secret")
		for _, origin := range []string{"https://app.example", "http://chat.example"} {
			ws, _, err := dial(t, n.handler, "user=ann", http.Header{"Origin": {origin}})
			require.NoError(t, err, origin)
			require.NoError(t, ws.CloseNow())
		}
		n.shutDown(t)
		assert.Equal(t, errors.Unavailable, refused("user=ann", nil, http.StatusServiceUnavailable).Code)
	})
}

// TestHandshake_SelectsTheSubprotocolWithTheToken, because browsers close the connection otherwise.
func TestHandshake_SelectsTheSubprotocolWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		}})[0]
		ws, _, err := dial(t, n.handler, "", http.Header{"Subprotocols": {"bearer.ann"}})
		require.NoError(t, err)
		defer func() { _ = ws.CloseNow() }()
		assert.Equal(t, "bearer.ann", ws.Subprotocol())
		p := &page{t, ws}
		p.write(submit("1", "ann-1", "m", script{}))
		assert.Equal(t, "end", p.read("1").end.Type)
	})
}

func TestHandshake_IdentityExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{UserID: "ann", ExpiresAt: time.Now().Add(time.Minute)}, nil
		}})[0]
		p := n.open(t, "ann")
		began := time.Now()
		assert.EqualValues(t, router.StatusUnauthenticated, p.closed())
		assert.Equal(t, time.Minute, time.Since(began))
	})
}
