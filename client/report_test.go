//go:build !js

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// Events that were handed over to a connection and did not arrive are reported, each once.
func TestSend_EventsLostWithTheConnectionAreReported(t *testing.T) {
	t.Parallel()
	const events = 50
	for _, pacing := range []bool{false, true} {
		var handled atomic.Int64
		simulate(t, pacing, func() *router.Router {
			limiter := memory.NewLimiter(limit.PerSecond(1000).Burst(1000).Named("messages"))
			r := quietRouter(&router.Options{AnnounceLimits: ratelimit.Announce(limiter, costs("SAY"))})
			router.On(r, func(*router.Context, say) error { handled.Add(1); return nil })
			return r
		}, func(s *simulated) {
			require.NoError(s, s.Connect(s.Context()))
			require.NoError(s, client.Send(s.Context(), s.Client, say{}))
			time.Sleep(time.Second) // until it is acknowledged
			for range events {
				require.NoError(s, client.Send(s.Context(), s.Client, say{}))
			}
			s.cut() // they are on their way
			time.Sleep(10 * time.Second)
			assert.EqualValues(s, 1, handled.Load())
			require.Len(s, s.errors, events)
			for range events {
				assert.Equal(s, "SAY ABORTED", <-s.errors)
			}
		})
	}
}

// A logBuffer receives records.
type logBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

// Write adds a record.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

// await returns the first record with a text.
func (b *logBuffer) await(t *testing.T, text string) (record map[string]any) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		b.mu.Lock()
		all := b.text.String()
		b.mu.Unlock()
		for line := range strings.Lines(all) {
			if strings.Contains(line, text) {
				require.NoError(t, json.Unmarshal([]byte(line), &record))
				return record
			}
		}
		select {
		case <-b.changed:
		case <-timeout:
			require.FailNow(t, "no record", "with %q in:\n%s", text, all)
		}
	}
}

// Not parallel: it replaces the default logger.
func TestLog_SaysWhyTheClientIsNotConnected(t *testing.T) {
	log, original := &logBuffer{changed: make(chan struct{}, 1)}, slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, nil)))
	defer slog.SetDefault(original)

	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	failing := startServer(t, &router.Options{OnOpen: func(context.Context, *router.Conn) error { return errors.New("no database") }})
	failing.start()
	forbidden := startServer(t, &router.Options{Authenticate: func(*http.Request) (router.Identity, error) {
		return router.Identity{}, errors.Errorf(errors.PermissionDenied, "not you")
	}})
	forbidden.start()
	for _, tt := range []struct{ url, level, text string }{
		{"ws://127.0.0.1:1/refused", "WARN", "connection refused"},
		{strings.Replace(missing.URL, "http", "ws", 1) + "/missing", "WARN", "404 Not Found"},
		{failing.url() + "/failing", "WARN", "1011"},
		{forbidden.url() + "/forbidden", "ERROR", "not you"},
	} {
		c := client.New(tt.url+"?secret=1", &client.Options{
			Token: func(context.Context, bool) (string, error) { return "s3cret", nil }, TokenInURL: true,
		})
		go func() { _ = c.Connect(t.Context()) }()
		record := log.await(t, tt.text)
		assert.Equal(t, tt.level, record["level"])
		assert.Equal(t, tt.url, record["url"])
		require.NoError(t, c.Close(testContext(t)))
	}
	assert.NotContains(t, log.text.String(), "secret")
	assert.NotContains(t, log.text.String(), "s3cret")
}

func TestToken_IsSentInTheHeaderOfEachAttempt(t *testing.T) {
	t.Parallel()
	type credentials struct{ authorization, query, other string }
	for _, inURL := range []bool{false, true} {
		seen := make(chan credentials, 2)
		s := startServer(t, &router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
			seen <- credentials{req.Header.Get("Authorization"), req.URL.RawQuery, req.Header.Get("X-Other")}
			if router.Token(req) != "new" {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "log in first")
			}
			return router.Identity{UserID: "ann"}, nil
		}})
		s.start()
		header := http.Header{"Authorization": {"Basic Og=="}, "X-Other": {"kept"}}
		c := s.connect(&client.Options{TokenInURL: inURL, Header: header, Token: func(_ context.Context, expired bool) (string, error) {
			if expired {
				return "new", nil
			}
			return "old", nil
		}})
		require.NoError(t, c.Connect(testContext(t)))
		for _, token := range []string{"old", "new"} {
			want := credentials{"Bearer " + token, "", "kept"}
			if inURL {
				want = credentials{"Basic Og==", "access_token=" + token, "kept"}
			}
			assert.Equal(t, want, <-seen)
		}
		assert.Equal(t, "Basic Og==", header.Get("Authorization"), "the header of the application is not changed")
	}
}
