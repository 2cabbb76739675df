//go:build !js

package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A simulated is a router and a client in virtual time.
type simulated struct {
	*testing.T
	*client.Client

	errors chan string // of Options.OnError: type and code
	cut    func()      // breaks the connections
}

// simulate runs a test in virtual time. start returns the router; channels and limiters that it makes belong to the
// bubble.
func simulate(t *testing.T, pacing bool, start func() *router.Router, test func(*simulated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := start()
		network := newDelayedNetwork(10 * time.Millisecond)
		httpClient, closeAll := network.serve(r)
		defer closeAll()
		s := &simulated{T: t, errors: make(chan string, 10_000), cut: network.cut}
		s.Client = client.New("ws://example.com/", &client.Options{
			HTTPClient: httpClient, Pacing: pacing, Logger: slog.New(slog.DiscardHandler),
			OnError: func(typ string, err error) { s.errors <- fmt.Sprint(typ, " ", errors.CodeOf(err)) },
		})
		defer func() { require.NoError(t, s.Close(context.Background())) }()
		test(s)
	})
}

// rejectFor returns an ingress function that rejects a type with a delay, as long as the test says.
func rejectFor(typ string, delay time.Duration, rejects *atomic.Bool) router.IngressFunc {
	return func(_ context.Context, in router.IngressContext) error {
		if in.Type != typ || !rejects.Load() {
			return nil
		}
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: delay}
	}
}

func quietRouter(opts *router.Options) *router.Router {
	opts.Logger = slog.New(slog.DiscardHandler)
	return router.New(opts)
}

// costs limits types, each message at the cost of a token.
func costs(types ...string) *ratelimit.Options {
	return &ratelimit.Options{Key: ratelimit.KeyPerConn, Cost: func(in router.IngressContext) int64 {
		if slices.Contains(types, in.Type) {
			return 1
		}
		return 0
	}}
}

func TestPacing_RejectedTypeDelaysNoOther(t *testing.T) {
	t.Parallel()
	var rejects atomic.Bool
	rejects.Store(true)
	simulate(t, true, func() *router.Router {
		r := quietRouter(&router.Options{})
		r.UseIngress(rejectFor("SAY", 5*time.Hour, &rejects))
		router.Topic(r, "room", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
		router.On(r, func(*router.Context, say) error { return nil })
		router.RPC(r, func(_ *router.Context, m add) (sum, error) { return sum{m.A + m.B}, nil })
		return r
	}, func(s *simulated) {
		ctx := s.Context()
		require.NoError(s, s.Connect(ctx))
		require.NoError(s, client.Send(ctx, s.Client, say{"a"}))
		synctest.Wait()
		for range 2 { // on this connection, and on the next one
			start := time.Now()
			_, err := client.Call[sum](ctx, s.Client, add{1, 1})
			require.NoError(s, err)
			_, err = s.Subscribe(ctx, "room", nil)
			require.NoError(s, err)
			assert.Less(s, time.Since(start), time.Second)
			s.cut()
			time.Sleep(5 * time.Second)
		}
		assert.Empty(s, s.errors)
		time.Sleep(30 * time.Second)
		assert.Equal(s, "SAY DEADLINE_EXCEEDED", <-s.errors, "an event waits for at most Queue.MaxWait")
		rejects.Store(false)
		start := time.Now()
		require.NoError(s, client.Send(ctx, s.Client, say{"b"}), "the wait ended with the message")
		assert.Less(s, time.Since(start), time.Second)
	})
}

// The wait of a call ends with the call, and those of the type that were behind it continue.
func TestPacing_WaitEndsWithItsCall(t *testing.T) {
	t.Parallel()
	var rejects atomic.Bool
	rejects.Store(true)
	simulate(t, true, func() *router.Router {
		r := quietRouter(&router.Options{})
		r.UseIngress(rejectFor("ADD", 5*time.Hour, &rejects))
		router.RPC(r, func(_ *router.Context, m add) (sum, error) { return sum{m.A + m.B}, nil })
		return r
	}, func(s *simulated) {
		first, cancel := context.WithCancel(s.Context())
		failed := make(chan error)
		go func() { _, err := client.Call[sum](first, s.Client, add{1, 1}); failed <- err }()
		time.Sleep(time.Second)
		rejects.Store(false)
		replied := make(chan error)
		go func() { _, err := client.Call[sum](s.Context(), s.Client, add{2, 2}); replied <- err }()
		synctest.Wait()
		start := time.Now()
		assert.Greater(s, time.Until(s.NextAllowedAt("ADD")), 4*time.Hour)
		cancel()
		assert.Equal(s, errors.Canceled, errors.CodeOf(<-failed))
		require.NoError(s, <-replied)
		assert.Less(s, time.Since(start), time.Second)
		rejects.Store(true)
		start = time.Now()
		_, err := client.Call[sum](s.Context(), s.Client, add{3, 3})
		assert.Equal(s, errors.DeadlineExceeded, errors.CodeOf(err))
		assert.Equal(s, 30*time.Second, time.Since(start))
	})
}

type costly struct {
	Text string `json:"text"`
}

func (costly) MessageType() string { return "COSTLY" }

// Announced buckets: a message that waits for one delays those that take tokens from it, and no others.
func TestPacing_OneBucketDelaysNoOther(t *testing.T) {
	t.Parallel()
	simulate(t, true, func() *router.Router {
		slow := memory.NewLimiter(limit.PerMinute(1).Burst(2).Named("slow"))
		fast := memory.NewLimiter(limit.PerSecond(1000).Burst(1000).Named("fast"))
		announceSlow, announceFast := ratelimit.Announce(slow, costs("SAY", "COSTLY")), ratelimit.Announce(fast, costs("ADD"))
		r := quietRouter(&router.Options{AnnounceLimits: func(in router.IngressContext) []router.AnnouncedLimit {
			return append(announceSlow(in), announceFast(in)...)
		}})
		r.UseIngress(ratelimit.New(slow, costs("SAY", "COSTLY")))
		r.UseIngress(ratelimit.New(fast, costs("ADD")))
		router.On(r, func(*router.Context, say) error { return nil })
		router.On(r, func(*router.Context, costly) error { return nil })
		router.RPC(r, func(_ *router.Context, m add) (sum, error) { return sum{m.A + m.B}, nil })
		return r
	}, func(s *simulated) {
		ctx := s.Context()
		for range 2 {
			require.NoError(s, client.Send(ctx, s.Client, say{"a"}))
		}
		go func() { _ = client.Send(ctx, s.Client, say{"b"}) }() // waits for its bucket
		synctest.Wait()
		start := time.Now()
		_, err := client.Call[sum](ctx, s.Client, add{1, 1})
		require.NoError(s, err)
		assert.Less(s, time.Since(start), time.Second)
		err = client.Send(ctx, s.Client, costly{"c"}) // takes from the same bucket
		assert.Equal(s, errors.DeadlineExceeded, errors.CodeOf(err))
	})
}

func TestCall_WaitsForAnnouncedConcurrency(t *testing.T) {
	t.Parallel()
	for _, pacing := range []bool{false, true} {
		var running, most atomic.Int64
		var received chan string
		simulate(t, pacing, func() *router.Router {
			received = make(chan string, 1)
			r := quietRouter(&router.Options{})
			router.RPC(r, func(_ *router.Context, m add) (sum, error) {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				return sum{m.A + m.B}, nil
			})
			router.On(r, func(_ *router.Context, m say) error { received <- m.Text; return nil })
			return r
		}, func(s *simulated) {
			answered := make(chan error, 200)
			for i := range 200 { // before there is a connection
				go func() { _, err := client.Call[sum](s.Context(), s.Client, add{i, 1}); answered <- err }()
			}
			synctest.Wait()
			start := time.Now()
			require.NoError(s, client.Send(s.Context(), s.Client, say{"hi"}))
			<-received
			assert.Less(s, time.Since(start), time.Second, "an event does not wait for calls")
			for range 200 {
				require.NoError(s, <-answered)
			}
			assert.LessOrEqual(s, most.Load(), int64(64))
			assert.Less(s, time.Since(start), 6*time.Second)
			assert.Empty(s, s.errors)
		})
	}
}
