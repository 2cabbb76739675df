package ratelimit_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type Render struct {
	How string `json:"how"`
}

func (Render) MessageType() string { return "RENDER" }

type Rendered struct{}

func (Rendered) MessageType() string { return "RENDERED" }

// A semaphoreFunc is a function that implements limit.Semaphore.
type semaphoreFunc func(context.Context) (limit.Permit, error)

func (f semaphoreFunc) Acquire(ctx context.Context, _ limit.Key) (limit.Permit, error) { return f(ctx) }

func renderer(semaphore limit.Semaphore, opts *ratelimit.ConcurrencyOptions, limits *[]router.LimitExceeded) *router.Router {
	r := router.New(&router.Options{OnLimitExceeded: func(l router.LimitExceeded) { *limits = append(*limits, l) }, OnError: func(router.ErrorReport) {}})
	r.Use(ratelimit.Concurrency(semaphore, opts))
	router.RPC(r, func(ctx *router.Context, m Render) (Rendered, error) {
		switch m.How {
		case "slow":
			time.Sleep(time.Second)
		case "not found":
			return Rendered{}, errors.Errorf(errors.NotFound, "nothing to render")
		case "panic":
			panic("no")
		}
		return Rendered{}, ctx.Err()
	})
	return r
}

func TestConcurrency_BoundsCallsAndReleasesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []router.LimitExceeded
		r := renderer(memory.NewSemaphore(2), nil, &limits)
		one, two := routertest.Dial(t, r), routertest.Dial(t, r) // from one address
		for _, how := range []string{"not found", "panic", "not found"} {
			assert.NotNil(t, routertest.CallError(one, Render{how}))
		}
		one.Send(Render{"slow"})
		two.Send(Render{"slow"})
		synctest.Wait()
		err := routertest.CallError(one, Render{"fast"})
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, "in_flight", errors.DetailsOf[errors.LimitDetails](err).Kind)
		synctest.Wait()
		assert.Len(t, limits, 1, "reported once")
		assert.Equal(t, []any{router.LimitConcurrency, "RENDER", int64(3), int64(2)}, []any{limits[0].Kind, limits[0].Type, limits[0].Observed, limits[0].Limit})
		time.Sleep(time.Second)
		synctest.Wait()
		routertest.Receive[Rendered](one)
		routertest.Receive[Rendered](two)
		routertest.Call[Rendered](one, Render{"fast"})

		one.Send(Render{"slow"})
		synctest.Wait()
		one.Abort() // releases the permit too
		time.Sleep(time.Second)
		synctest.Wait()
		two.Send(Render{"slow"})
		routertest.Call[Rendered](two, Render{"fast"})
		time.Sleep(time.Second) // until all handlers have returned
	})
}

func TestConcurrency_AppliesFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := semaphoreFunc(func(context.Context) (limit.Permit, error) { return limit.Permit{}, io.ErrUnexpectedEOF })
		var limits []router.LimitExceeded
		failClosed := renderer(down, nil, &limits)
		assert.Equal(t, errors.Unavailable, routertest.CallError(routertest.Dial(t, failClosed), Render{"fast"}).Code)
		failOpen := renderer(down, &ratelimit.ConcurrencyOptions{FailOpen: true}, &limits)
		routertest.Call[Rendered](routertest.Dial(t, failOpen), Render{"fast"})
		assert.Empty(t, limits, "an outage exceeds no limit")
	})
	assert.Panics(t, func() { ratelimit.Concurrency(nil, nil) })
	assert.Panics(t, func() { ratelimit.Concurrency(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{Timeout: -1}) })
}

// TestConcurrency_CanceledCallIsNoFailure cancels calls while the semaphore is slow.
func TestConcurrency_CanceledCallIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outcomes []observe.Outcome
		slow := semaphoreFunc(func(ctx context.Context) (limit.Permit, error) {
			<-ctx.Done()
			return limit.Permit{}, ctx.Err()
		})
		wrap := ratelimit.Concurrency(slow, &ratelimit.ConcurrencyOptions{
			FailOpen: true,
			Observe:  func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
		})
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: 10 * time.Millisecond}, OnError: func(router.ErrorReport) {}})
		r.Use(wrap)
		router.RPC(r, func(*router.Context, Render) (Rendered, error) {
			t.Error("the handler was called")
			return Rendered{}, nil
		})
		client := routertest.Dial(t, r)
		for range 7 {
			assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(client, Render{"fast"}).Code)
			synctest.Wait()
		}
		assert.Equal(t, []observe.Outcome{
			observe.Canceled, observe.Canceled, observe.Canceled, observe.Canceled,
			observe.Canceled, observe.Canceled, observe.Canceled,
		}, outcomes)
	})
}
