//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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
		simulate(t, pacing, func() *router.Router {
			limiter := memory.NewLimiter(limit.PerSecond(1000).Burst(1000).Named("messages"))
			r := quietRouter(&router.Options{AnnounceLimits: ratelimit.Announce(limiter, costs("SAY"))})
			router.On(r, func(*router.Context, say) error { return nil })
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
			require.Len(s, s.errors, events)
			for range events {
				assert.Equal(s, "SAY ABORTED", <-s.errors)
			}
		})
	}
}

// records is a slog.Handler that hands out records.
type records struct {
	slog.Handler

	found chan slog.Record
}

func (records) Enabled(context.Context, slog.Level) bool { return true }

func (h records) Handle(_ context.Context, r slog.Record) error {
	h.found <- r
	return nil
}

// Not parallel: it replaces the default logger.
func TestLog_SaysWhyTheClientIsNotConnected(t *testing.T) {
	log, original := records{slog.DiscardHandler, make(chan slog.Record, 1000)}, slog.Default()
	slog.SetDefault(slog.New(log))
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
		for found := false; !found; {
			record := <-log.found
			text := record.Message
			record.Attrs(func(a slog.Attr) bool {
				text += " " + a.String()
				return true
			})
			assert.NotContains(t, text, "secret")
			assert.NotContains(t, text, "s3cret")
			if found = strings.Contains(text, tt.text); found {
				assert.Equal(t, tt.level, record.Level.String())
				assert.Contains(t, text, "url="+tt.url)
			}
		}
		require.NoError(t, c.Close(testContext(t)))
	}
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
