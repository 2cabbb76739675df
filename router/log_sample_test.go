package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// suppressedIn returns the number of suppressed lines that a line stands for.
func suppressedIn(rec slog.Record) (n int64) {
	rec.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "suppressed" {
			n = attr.Value.Int64()
		}
		return true
	})
	return n
}

// A logCounter counts lines and those that they stand for.
type logCounter struct{ records recorder[slog.Record] }

func (l *logCounter) logger() *slog.Logger {
	return slog.New(&hookedHandler{handle: func(rec slog.Record) { l.records.add(rec) }})
}

// failures returns the number of lines about failed messages, and that of events that they stand for.
func (l *logCounter) failures() (lines int, events int64) {
	for _, rec := range l.records.all() {
		if rec.Message == "message failed" {
			lines++
			events += 1 + suppressedIn(rec)
		}
	}
	return lines, events
}

// TestLogger_FailuresOfIngressAreAggregated lets the store of a limiter be away for 3,000 messages of
// two types.
func TestLogger_FailuresOfIngressAreAggregated(t *testing.T) {
	t.Parallel()
	for _, hooked := range []bool{false, true} {
		runSynctest(t, fmt.Sprintf("OnError %v", hooked), func(t *testing.T) {
			var log logCounter
			var reports recorder[router.ErrorReport]
			opts := router.Options{Logger: log.logger()}
			if hooked {
				opts.OnError = reports.add
			}
			r := router.New(&opts)
			n := 0
			r.UseIngress(func(context.Context, router.IngressContext) error {
				n++
				return &errors.Error{Code: errors.Unavailable, Err: fmt.Errorf("dial tcp 192.0.2.1:%d: connection refused", n)}
			})
			router.On(r, func(*router.Context, Echo) error { return nil })
			router.On(r, func(*router.Context, Nothing) error { return nil })
			c := routertest.Dial(t, r)
			for i := range 3000 {
				c.Send([]router.Message{Echo{}, Nothing{}}[i%2])
				c.Next()
			}
			time.Sleep(time.Minute)
			lines, events := log.failures()
			if hooked {
				assert.Len(t, reports.all(), 3000, "the hook receives every error")
				assert.Zero(t, lines)
				return
			}
			assert.EqualValues(t, 3000, events)
			assert.Equal(t, 2, lines, "one at once, and one with what followed")
		})
	}
}

// TestLogger_KindsAreSampledApart has frequent errors, which do not hide others, and ends the server before the next line
// is due.
func TestLogger_KindsAreSampledApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logCounter
		r := router.New(&router.Options{Logger: log.logger()})
		fail := errors.New("failed")
		router.On(r, func(*router.Context, Echo) error { return fail })
		router.On(r, func(*router.Context, Nothing) error { return fail })
		router.On(r, func(*router.Context, Say) error { return &errors.Error{Code: errors.Unavailable, Err: fail} })
		c := routertest.Dial(t, r)
		for range 100 {
			c.Send(Echo{})
		}
		c.Send(Nothing{})
		c.Send(Say{Room: "a", Text: "b"})
		synctest.Wait()
		lines, events := log.failures()
		assert.Equal(t, 3, lines)
		assert.EqualValues(t, 3, events)
		require.NoError(t, r.Shutdown(t.Context()))
		for range 2 { // nothing is counted twice
			_, events = log.failures()
			assert.EqualValues(t, 102, events)
			time.Sleep(time.Minute)
		}
	})
}

// TestLogger_ErrorsOfClientsDoNotMakeKinds returns errors whose codes the client chooses.
func TestLogger_ErrorsOfClientsDoNotMakeKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logCounter
		r := router.New(&router.Options{Logger: log.logger()})
		router.On(r, func(_ *router.Context, m Say) error {
			return &errors.Error{Code: errors.Code(m.Text), Err: errors.New("failed")}
		})
		c := routertest.Dial(t, r)
		for i := range 1000 {
			c.Send(Say{Room: "a", Text: fmt.Sprint("CODE_", i)})
		}
		time.Sleep(time.Minute)
		lines, events := log.failures()
		assert.Equal(t, 2, lines)
		assert.EqualValues(t, 1000, events)
	})
}

// A note is a message whose text is secret.
type note struct {
	Text string `json:"text"`
	Do   string `json:"do"`
}

func (note) MessageType() string { return "NOTE" }

func handleNote(_ *router.Context, m note) (note, error) {
	switch m.Do {
	case "panic":
		panic(m)
	case "point":
		panic(&m)
	case "index":
		notes := make([]note, 1)
		return notes[len(m.Do)], nil
	case "error":
		return m, &errors.Error{Code: errors.NotFound, Message: m.Text, Details: map[string]any{"text": m.Text}, Err: http.ErrNoCookie}
	case "bare":
		return m, http.ErrNoCookie
	}
	return m, nil
}

// A lockedBuffer is a buffer that is safe for concurrent writes.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestLogger_NeverReceivesSecrets(t *testing.T) {
	handlers := map[string]func(*lockedBuffer, *slog.HandlerOptions) slog.Handler{
		"json": func(b *lockedBuffer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(b, o) },
		"text": func(b *lockedBuffer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(b, o) },
	}
	for name, handler := range handlers {
		runSynctest(t, name, func(t *testing.T) {
			var log lockedBuffer
			logSecrets(t, slog.New(handler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 100, AddSource: true})))
			text := log.String()
			for _, secret := range []string{"S3CRET", "T0KEN", "C00KIE", "H3ADER", "REAS0N"} {
				assert.NotContains(t, text, secret)
			}
			for _, entry := range []string{
				"connection opened", "connection closed", "connection refused", "message failed", "hook panicked",
			} {
				assert.Contains(t, text, entry)
			}
			if name == "json" {
				checkKeys(t, text)
			}
		})
	}
}

// logSecrets makes a router write every log entry that it has, with a secret in every value that
// a client or an application controls.
func logSecrets(t *testing.T, logger *slog.Logger) {
	r := router.New(&router.Options{
		Logger: logger,
		Limits: router.Limits{MaxMessageBytes: 300},
		Authenticate: func(req *http.Request) (router.Identity, error) {
			switch router.Token(req) {
			case "T0KEN-wrong":
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "no such token: %s", router.Token(req))
			case "T0KEN-down":
				return router.Identity{}, http.ErrServerClosed
			}
			return router.Identity{UserID: "ann", Data: req}, nil
		},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			if c.Identity().Data.(*http.Request).Header.Get("X-Panic") != "" {
				panic(c.Identity().Data)
			}
			return nil
		},
		OnClose:         func(c *router.Conn, _ router.CloseError) { panic(c.Identity().Data.(*http.Request).Header) },
		OnLimitExceeded: func(l router.LimitExceeded) { panic(l) },
	})
	r.Observe(func(e observe.Event) {
		if e.Kind == observe.Completed {
			panic(e)
		}
	})
	router.RPC(r, handleNote)
	secret := []routertest.Option{routertest.Header("Cookie", "session=C00KIE"), routertest.Header("X-Secret", "H3ADER")}
	with := func(opts ...routertest.Option) []routertest.Option { return append(opts, secret...) }
	routertest.Refused(t, r, with(routertest.Token("T0KEN-wrong"))...)
	routertest.Refused(t, r, with(routertest.Token("T0KEN-down"))...)
	routertest.Refused(t, r, with(routertest.Header("Origin", "https://S3CRET.example"))...)
	routertest.Dial(t, r, with(routertest.Token("T0KEN"), routertest.Header("X-Panic", "1"))...).Closed()
	conn := routertest.Dial(t, r, with(routertest.Header("Sec-WebSocket-Protocol", "bearer.T0KEN"))...)
	for _, do := range []string{"", "panic", "point", "index", "error", "bare"} {
		conn.Send(note{"S3CRET", do})
	}
	for _, text := range []string{
		`S3CRET`, `{"type":"S3CRET"}`, `{"type":"NOTE","meta":{"correlationId":"S3CRET"},"payload":"S3CRET"}`,
		`{"type":"NOTE","payload":{"text":{"S3CRET":1}}}`, `{"type":"NOTE","payload":{"text":"` + strings.Repeat("S3CRET", 100) + `"}}`,
	} {
		conn.SendText(text)
	}
	synctest.Wait()
	conn.CloseWith(4000, "REAS0N")
	routertest.Dial(t, r, secret...).Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, r.Shutdown(ctx))
	synctest.Wait()
}

func checkKeys(t *testing.T, text string) {
	documented := map[string]bool{"time": true, "level": true, "msg": true, "source": true}
	for _, key := range []string{"conn", "ip", "transport", "type", "error", "stack", "hook", "panic", "code", "reason", "suppressed"} {
		documented[key] = true
	}
	for line := range strings.Lines(text) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		for key := range entry {
			assert.True(t, documented[key], "%s is not a documented key", key)
		}
	}
}
