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

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestClient_SlowHandshakeIsNoHealthyConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
