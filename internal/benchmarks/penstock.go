package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// manyFromOneAddress returns limits that are checked like the default ones, and that the clients of the
// benchmark, which have one address, do not reach.
func manyFromOneAddress() router.Limits {
	rate := router.Rate{PerSecond: 1_000_000_000, Burst: 1_000_000_000}
	return router.Limits{ConnsPerIP: router.Unlimited, HandshakesPerIP: rate, MessagesPerConn: rate, MessagesPerIP: rate}
}

func servePenstock() (http.Handler, func(int)) {
	opts := &router.Options{
		OnOpen:          func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") },
		OnLimitExceeded: func(router.LimitExceeded) {},
		Limits:          manyFromOneAddress(),
	}
	if compresses() {
		opts.CompressMinBytes = deflateMinBytes
	}
	if os.Getenv(deflateMode) == windowModes["penstock"] {
		opts.CompressWindowBytes = 1 << 30
	}
	r := router.New(opts)
	policy := limit.PerSecond(1_000_000_000).Burst(2_000_000)
	r.UseIngress(ratelimit.New(memory.NewLimiter(policy), &ratelimit.Options{Key: ratelimit.KeyPerConn}))
	router.RPC(r, func(_ *router.Context, m Say) (Said, error) { return said(m), nil })
	router.On(r, func(ctx *router.Context, m Tell) error { return ctx.Send(said(Say(m))) })
	router.RPC(r, func(_ *router.Context, m Wait) (Waited, error) { m.wait(); return Waited{}, nil })
	router.RPC(r, func(_ *router.Context, m Save) (Saved, error) { return Saved(m), nil })
	if bytes.HasPrefix(publications[0], []byte(`{"type":"SAVED"`)) {
		return r, publisher[Saved](r)
	}
	return r, publisher[Said](r)
}

// publisher returns a function that publishes the publications, which are of type M.
func publisher[M router.Message](r *router.Router) func(n int) {
	messages := make([]M, len(publications))
	for i, text := range publications {
		check(json.Unmarshal(text, &struct{ Payload *M }{&messages[i]}))
	}
	return func(n int) {
		for range n {
			check(r.Publish("all", messages[nextIndex()]))
		}
	}
}
