//go:build !js

package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestConnect_AsksForAnotherTokenOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, &router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
		if router.Token(req) != "good" {
			return router.Identity{}, errors.Errorf(errors.Unauthenticated, "log in first")
		}
		return router.Identity{UserID: "ann"}, nil
	}})
	s.start()
	for _, reject := range []bool{false, true} {
		var asked []bool
		c := s.connect(&client.Options{Token: func(_ context.Context, expired bool) (string, error) {
			asked = append(asked, expired)
			if expired && !reject {
				return "good", nil
			}
			return "old", nil
		}})
		err := c.Connect(testContext(t))
		assert.Equal(t, []bool{false, true}, asked)
		if !reject {
			require.NoError(t, err)
			continue
		}
		assert.Equal(t, errors.Unauthenticated, errors.CodeOf(err))
		<-c.Done()
		assert.Equal(t, errors.Unauthenticated, errors.CodeOf(c.Err()))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestClient_SlowHandshakeIsNoHealthyConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Second) // until what is on its way has arrived
		attempts := 0
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			p.send("$ws:welcome", m, object{"concurrency": 64})
			_ = p.Close(4401, "")
		})
		defer closeAll()
		slow := roundTripper(func(req *http.Request) (*http.Response, error) {
			attempts++
			time.Sleep(6 * time.Second)
			return httpClient.Transport.RoundTrip(req)
		})
		c := client.New("ws://example.com/", &client.Options{HTTPClient: &http.Client{Transport: slow}, Logger: slog.New(slog.DiscardHandler)})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		_ = c.Connect(t.Context())
		time.Sleep(time.Minute)
		assert.Equal(t, client.Closed, c.State(), "the server has rejected the token twice in a row")
		assert.Equal(t, 2, attempts)
	})
}

func TestClient_DelayThatIsNoneKeepsBackoff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, retryAfter string }{
		"negative":         {body: `{"code":"UNAVAILABLE","retryable":true,"retryAfterMs":-3600000}`},
		"sum too large":    {body: `{"code":"UNAVAILABLE","retryable":true,"retryAfterMs":9223372036853}`},
		"negative seconds": {retryAfter: "-3600"},
		"too many seconds": {retryAfter: "10000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				rejects := roundTripper(func(req *http.Request) (*http.Response, error) {
					if attempts++; attempts > 100 {
						<-req.Context().Done()
					}
					header, body := http.Header{"Retry-After": {test.retryAfter}}, io.NopCloser(strings.NewReader(test.body))
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: header, Body: body}, nil
				})
				c := client.New("ws://example.com/", &client.Options{HTTPClient: &http.Client{Transport: rejects}, Logger: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				require.Error(t, c.Connect(ctx))
				assert.LessOrEqual(t, attempts, 10)
				require.NoError(t, c.Close(context.Background()))
			})
		})
	}
}

func TestClient_RefreshesIdentityBeforeItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Second) // until what is on its way has arrived
		var tokens atomic.Int64
		r := quietRouter(&router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
			tokens.Add(1)
			return router.Identity{UserID: "ann", ExpiresAt: time.Now().Add(3 * time.Second)}, nil
		}})
		httpClient, closeAll := newDelayedNetwork(constant(100 * time.Millisecond)).serve(r)
		defer closeAll()
		var states []client.State
		c := client.New("ws://example.com/", &client.Options{
			HTTPClient: httpClient,
			Token:      func(context.Context, bool) (string, error) { return "token", nil },
			OnState:    func(s client.State, _ error) { states = append(states, s) },
		})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		require.NoError(t, c.Connect(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.GreaterOrEqual(t, tokens.Load(), int64(20))
		assert.Equal(t, []client.State{client.Connecting, client.Open}, states, "the connection has stayed open")
	})
}

func TestQueue_OverflowFailsOneMessage(t *testing.T) {
	t.Parallel()
	for _, overflow := range []client.Overflow{client.DropNewest, client.DropOldest} {
		c := client.New("ws://127.0.0.1:1", &client.Options{Queue: client.Queue{MaxMessages: 2, Overflow: overflow}})
		ctx := testContext(t)
		failed := make(chan string, 3)
		for i := range 3 {
			go func() {
				err := client.Send(ctx, c, say{fmt.Sprint(i)})
				failed <- fmt.Sprint(i, " ", errors.CodeOf(err))
			}()
			time.Sleep(50 * time.Millisecond) // until it is queued
		}
		if overflow == client.DropNewest {
			assert.Equal(t, "2 RESOURCE_EXHAUSTED", <-failed)
		} else {
			assert.Equal(t, "0 RESOURCE_EXHAUSTED", <-failed)
		}
		require.NoError(t, c.Close(ctx))
	}
}

func TestQueue_MessageThatNeverFitsDropsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unreachable := roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		c := client.New("ws://example.com/", &client.Options{
			HTTPClient: &http.Client{Transport: unreachable}, Queue: client.Queue{MaxBytes: 2000, Overflow: client.DropOldest}, Logger: slog.New(slog.DiscardHandler),
		})
		small := make(chan error, 1)
		go func() { small <- client.Send(t.Context(), c, say{"small"}) }()
		synctest.Wait()
		err := client.Send(t.Context(), c, say{strings.Repeat("x", 4000)})
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		synctest.Wait()
		assert.Empty(t, small, "it waits")
		require.NoError(t, c.Close(context.Background()))
		require.ErrorIs(t, <-small, client.ErrClosed)
	})
}

func TestNew_InvalidOptionsPanic(t *testing.T) {
	t.Parallel()
	assert.PanicsWithValue(t, "client: Options.CallTimeout is -1s; it must be positive", func() {
		client.New("ws://example.com", &client.Options{CallTimeout: -time.Second})
	})
	assert.Panics(t, func() { client.New("ws://example.com", &client.Options{Queue: client.Queue{Overflow: 7}}) })
}

// TestConnect_StopsIfTheCloseCodeIsFinal closes the first connection with each code.
func TestConnect_StopsIfTheCloseCodeIsFinal(t *testing.T) {
	t.Parallel()
	final := func(code int) bool { return code == 4711 }
	for _, test := range []struct {
		code   router.StatusCode
		reason string
		stops  bool
	}{
		{4403, "", true},
		{4409, "", true},
		{4429, `{"code":"FAILED_PRECONDITION","retryAfterMs":null}`, true},
		{4711, "", true},
		{4712, "", false},
		{4429, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":1}`, false},
		{1013, `{"code":"FAILED_PRECONDITION","retryAfterMs":null}`, false},
		{1009, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null}`, false},
	} {
		t.Run(fmt.Sprint(test.code, test.reason), func(t *testing.T) {
			t.Parallel()
			var opened atomic.Int64
			s := startServer(t, &router.Options{OnOpen: func(context.Context, *router.Conn) error {
				if opened.Add(1) == 1 {
					return &router.CloseError{Code: test.code, Reason: test.reason}
				}
				return nil
			}})
			s.start()
			c := s.connect(&client.Options{StopOn: final})
			err := c.Connect(testContext(t))
			if !test.stops {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			<-c.Done()
			assert.EqualValues(t, 1, opened.Load())
		})
	}
}
