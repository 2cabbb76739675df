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

type slotsFunc func() (ratelimit.Slot, error)

func (f slotsFunc) Acquire(context.Context, ratelimit.Key) (ratelimit.Slot, error) { return f() }

func renderer(slots ratelimit.Slots, opts *ratelimit.InFlightOptions, limits *[]router.LimitExceeded) *router.Router {
	r := router.New(&router.Options{OnLimitExceeded: func(l router.LimitExceeded) { *limits = append(*limits, l) }, OnError: func(router.Failure) {}})
	r.Use(ratelimit.InFlight(slots, opts))
	router.RPC(r, func(ctx *router.Context, m Render) (Rendered, error) {
		switch m.How {
		case "slowly":
			time.Sleep(time.Second)
		case "not at all":
			return Rendered{}, errors.Errorf(errors.NotFound, "nothing to render")
		case "badly":
			panic("no")
		}
		return Rendered{}, ctx.Err()
	})
	return r
}

func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []router.LimitExceeded
		r := renderer(memory.NewSlots(2), nil, &limits)
		one, two := routertest.Dial(t, r), routertest.Dial(t, r) // from one address
		for _, how := range []string{"not at all", "badly", "not at all"} {
			assert.NotNil(t, routertest.CallError(one, Render{how}))
		}
		one.Send(Render{"slowly"})
		two.Send(Render{"slowly"})
		synctest.Wait()
		err := routertest.CallError(one, Render{"at once"})
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, "in_flight", err.Details["kind"])
		synctest.Wait()
		assert.Len(t, limits, 1, "reported once")
		assert.Equal(t, []any{router.LimitInFlight, "RENDER", int64(3), int64(2)}, []any{limits[0].Kind, limits[0].Type, limits[0].Observed, limits[0].Limit})
		time.Sleep(time.Second)
		synctest.Wait()
		routertest.Receive[Rendered](one)
		routertest.Receive[Rendered](two)
		routertest.Call[Rendered](one, Render{"at once"})

		one.Send(Render{"slowly"})
		synctest.Wait()
		one.Abort() // the place comes back all the same
		time.Sleep(time.Second)
		synctest.Wait()
		two.Send(Render{"slowly"})
		routertest.Call[Rendered](two, Render{"at once"})
		time.Sleep(time.Second) // until all handlers have ended
	})
}

func TestInFlightWithoutSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := slotsFunc(func() (ratelimit.Slot, error) { return ratelimit.Slot{}, io.ErrUnexpectedEOF })
		var limits []router.LimitExceeded
		var seen []error
		deny := renderer(down, &ratelimit.InFlightOptions{OnError: func(err error) { seen = append(seen, err) }}, &limits)
		assert.Equal(t, errors.Unavailable, routertest.CallError(routertest.Dial(t, deny), Render{"at once"}).Code)
		assert.Equal(t, []error{io.ErrUnexpectedEOF}, seen)
		admit := renderer(down, &ratelimit.InFlightOptions{OnUnavailable: ratelimit.Admit}, &limits)
		routertest.Call[Rendered](routertest.Dial(t, admit), Render{"at once"})
		assert.Empty(t, limits, "an outage is no limit")
	})
	assert.Panics(t, func() { ratelimit.InFlight(nil, nil) })
	assert.Panics(t, func() { ratelimit.InFlight(memory.NewSlots(1), &ratelimit.InFlightOptions{Timeout: -1}) })
	assert.Panics(t, func() { ratelimit.InFlight(memory.NewSlots(1), &ratelimit.InFlightOptions{OnUnavailable: 7}) })
}
