package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
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

// counts returns the number of lines with a text, and that of events.
func (l *logCounter) counts(text string) (lines int, events int64) {
	for _, rec := range l.records.all() {
		if rec.Message == text {
			lines++
			events += 1 + suppressedIn(rec)
		}
	}
	return lines, events
}

// perSecond returns the largest number of lines with a text in one second.
func (l *logCounter) perSecond(text string) (most int) {
	seconds := map[int64]int{}
	for _, rec := range l.records.all() {
		if rec.Message == text {
			seconds[rec.Time.Unix()]++
			most = max(most, seconds[rec.Time.Unix()])
		}
	}
	return most
}

// TestLogger_BadMessagesAreSampled sends 3,000 messages in 30 seconds that the codec of the
// application cannot decode.
func TestLogger_BadMessagesAreSampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logCounter
		codec := newCountingCodec("a.v1")
		r := router.New(&router.Options{Logger: log.logger(), Codecs: []router.Codec{codec}})
		router.On(r, func(*router.Context, Echo) error { return nil })
		c := routertest.Dial(t, r, routertest.Codec(codec))
		for range 3000 {
			c.SendBinary(binaryMessage("ECHO", "x"))
			c.Next()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		lines, events := log.counts("message failed")
		assert.EqualValues(t, 3000, events, "every error is counted")
		assert.LessOrEqual(t, lines, 8)
		assert.LessOrEqual(t, log.perSecond("message failed"), 1)
	})
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
			lines, events := log.counts("message failed")
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

// TestLogger_KindsAreSampledApart checks that frequent errors do not hide others.
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
		lines, events := log.counts("message failed")
		assert.Equal(t, 3, lines)
		assert.EqualValues(t, 3, events)
		time.Sleep(time.Minute)
		_, events = log.counts("message failed")
		assert.EqualValues(t, 102, events)
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
		lines, events := log.counts("message failed")
		assert.Equal(t, 2, lines)
		assert.EqualValues(t, 1000, events)
	})
}

// TestLogger_ConnectionsAreSampled opens, rejects and closes many connections at debug level.
func TestLogger_ConnectionsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logCounter
		r := router.New(&router.Options{Logger: log.logger()})
		for i := range 300 {
			routertest.Dial(t, r).Close()
			routertest.Refused(t, r, routertest.Header("Origin", "https://other.example"))
			time.Sleep(time.Duration(i%10) * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, text := range []string{"connection opened", "connection closed", "connection refused"} {
			lines, events := log.counts(text)
			assert.EqualValues(t, 300, events, text)
			assert.LessOrEqual(t, log.perSecond(text), 20, text)
			assert.LessOrEqual(t, lines, 30, text)
		}
	})
}

// TestLogger_ShutdownWritesCounts ends the server before the next line of a kind is due.
func TestLogger_ShutdownWritesCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logCounter
		r := router.New(&router.Options{Logger: log.logger()})
		router.On(r, func(*router.Context, Echo) error { return errors.New("failed") })
		c := routertest.Dial(t, r)
		for range 100 {
			c.Send(Echo{})
			c.Next()
		}
		require.NoError(t, r.Shutdown(t.Context()))
		lines, events := log.counts("message failed")
		assert.Equal(t, 2, lines)
		assert.EqualValues(t, 100, events)
		time.Sleep(time.Minute)
		_, events = log.counts("message failed")
		assert.EqualValues(t, 100, events, "nothing is counted twice")
	})
}
