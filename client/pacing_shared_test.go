//go:build !js

package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
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

type costly struct {
	Text string `json:"text"`
}

func (costly) MessageType() string { return "COSTLY" }

// A pacedServer has one bucket for each user, and announces it: SAY takes 1 token, COSTLY 5.
type pacedServer struct {
	http    *http.Client
	changed chan struct{} // a message was received

	mu       sync.Mutex
	received map[string][]int // by client
	rejected int
	tokens   int
}

func startPacedServer(delay func() time.Duration) (s *pacedServer, closeAll func()) {
	s = &pacedServer{received: map[string][]int{}, changed: make(chan struct{}, 1)}
	limiter := memory.NewLimiter(limit.PerSecond(100).Burst(20).Named("messages"))
	limited := &ratelimit.Options{Key: ratelimit.KeyPerUser, Cost: func(in router.IngressContext) int64 {
		return map[string]int64{"SAY": 1, "COSTLY": 5}[in.Type]
	}}
	r := router.New(&router.Options{
		Logger:         slog.New(slog.DiscardHandler),
		AnnounceLimits: ratelimit.Announce(limiter, limited),
		Authenticate:   func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		OnLimitExceeded: func(router.LimitExceeded) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.rejected++
		},
	})
	r.UseIngress(ratelimit.New(limiter, limited))
	router.On(r, func(_ *router.Context, m say) error { s.receive(m.Text, 1); return nil })
	router.On(r, func(_ *router.Context, m costly) error { s.receive(m.Text, 5); return nil })
	s.http, closeAll = newDelayedNetwork(delay).serve(r)
	return s, closeAll
}

// receive notes a message, whose text is the name of the client and a number.
func (s *pacedServer) receive(text string, tokens int) {
	number, _ := strconv.Atoi(text[1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received[text[:1]] = append(s.received[text[:1]], number)
	s.tokens += tokens
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// await waits until messages with a sum of tokens have arrived, and returns how many were overtaken by a later one of their client.
func (s *pacedServer) await(tokens int) (overtaken int) {
	for range s.changed {
		s.mu.Lock()
		done := s.tokens >= tokens
		s.mu.Unlock()
		if done {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, numbers := range s.received {
		last := -1
		for _, n := range numbers {
			if n < last {
				overtaken++
			}
			last = max(last, n)
		}
	}
	return overtaken
}

// send sends numbered messages of both types from a new client: 4 messages take 8 tokens.
func (s *pacedServer) send(t *testing.T, name string, messages int) (closeClient func()) {
	t.Helper()
	check := func(err error) {
		if err != nil && !errors.Is(err, client.ErrClosed) { // the last acknowledgments may be on their way
			t.Error(err)
		}
	}
	c := client.New("ws://example.com/", &client.Options{HTTPClient: s.http, Pacing: true, OnError: func(_ string, err error) { check(err) }})
	require.NoError(t, c.Connect(t.Context()))
	go func() {
		for i := range messages {
			text := fmt.Sprint(name, i)
			var m client.Message = say{text}
			if i%4 == 3 {
				m = costly{text}
			}
			check(client.Send(context.Background(), c, m))
		}
	}()
	return func() { assert.NoError(t, c.Close(context.Background())) }
}

// Two connections of a user take tokens from one bucket, which neither of them expects.
func TestPacing_ConnectionsShareBucket(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{time.Millisecond, 25 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, closeAll := startPacedServer(constant(delay))
				defer closeAll()
				const messages, tokens = 1000, 4000
				begin := time.Now()
				defer s.send(t, "a", messages)()
				defer s.send(t, "b", messages)()
				overtaken := s.await(tokens)
				rate := (tokens - 20) / 100.0 / time.Since(begin).Seconds()
				t.Logf("%.2f %% of the allowed rate, %d rejected, %d overtaken", 100*rate, s.rejected, overtaken)
				assert.Equal(t, tokens, s.tokens, "each message is admitted once")
				assert.LessOrEqual(t, overtaken, 25, "only messages behind the first rejected ones")
				assert.GreaterOrEqual(t, rate, 0.5)
			})
		})
	}
}
