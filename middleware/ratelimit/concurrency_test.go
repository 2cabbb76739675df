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
type semaphoreFunc func() (limit.Permit, error)

func (f semaphoreFunc) Acquire(context.Context, limit.Key) (limit.Permit, error) { return f() }

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
		assert.Equal(t, "in_flight", err.Details["kind"])
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

func TestConcurrency_AppliesFailurePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := semaphoreFunc(func() (limit.Permit, error) { return limit.Permit{}, io.ErrUnexpectedEOF })
		var limits []router.LimitExceeded
		var seen []error
		failClosed := renderer(down, &ratelimit.ConcurrencyOptions{OnError: func(err error) { seen = append(seen, err) }}, &limits)
		assert.Equal(t, errors.Unavailable, routertest.CallError(routertest.Dial(t, failClosed), Render{"fast"}).Code)
		assert.Equal(t, []error{io.ErrUnexpectedEOF}, seen)
		failOpen := renderer(down, &ratelimit.ConcurrencyOptions{FailurePolicy: limit.FailOpen}, &limits)
		routertest.Call[Rendered](routertest.Dial(t, failOpen), Render{"fast"})
		assert.Empty(t, limits, "an outage exceeds no limit")
	})
	assert.Panics(t, func() { ratelimit.Concurrency(nil, nil) })
	assert.Panics(t, func() { ratelimit.Concurrency(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{Timeout: -1}) })
	assert.Panics(t, func() { ratelimit.Concurrency(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{FailurePolicy: 7}) })
}
