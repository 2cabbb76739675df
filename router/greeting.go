package router

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/announced"
	"github.com/penstock-go/penstock/internal/protocol"
)

// This file answers the greeting. A client that sends it receives messages of the protocol that
// other clients would not understand.

// greet answers the greeting. A client may repeat it, for example because its identity has
// changed, and its limits with it.
func greet(ctx *Context, m protocol.Hello) (protocol.Welcome, error) {
	if m.Version < 0 {
		return protocol.Welcome{}, errors.InvalidField("version", "must be at least 1")
	}
	c, opts := ctx.conn, &ctx.conn.router.opts
	began := time.Now()
	c.member.Greet()
	c.checkExpiry() // the client may be due for a warning
	if m.Trace {
		c.ownExtra().traced.Store(true)
	}
	w := protocol.Welcome{
		Version:         min(m.Version, protocol.Version), // absent if the client has sent none
		ConnID:          c.member.ID,
		PingIntervalMs:  opts.Timeouts.Ping.Milliseconds(),
		PongTimeoutMs:   opts.Timeouts.Pong.Milliseconds(),
		MaxMessageBytes: opts.Limits.MaxMessageBytes,
		CallTimeoutMs:   opts.Timeouts.Call.Milliseconds(),
		Concurrency:     opts.Limits.Concurrency,
		ContractHash:    strings.TrimSpace(opts.ContractHash),
		Limits:          c.announcedLimits(ctx),
	}
	for name, route := range c.router.routes {
		if route.maxBytes != w.MaxMessageBytes {
			set(&w.MaxMessageBytesByType, name, route.maxBytes)
		}
		if route.rpc && route.timeout != opts.Timeouts.Call {
			set(&w.CallTimeoutMsByType, name, route.timeout.Milliseconds())
		}
	}
	if m.Session && c.router.openSession != nil {
		w.Session = c.router.openSession(ctx, (*memberConn)(c))
	}
	c.router.members.AwaitUserLog(ctx, &c.member, began)
	return w, nil
}

// set sets an element of a map, which it creates if it is nil.
func set(m *map[string]int64, name string, value int64) {
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[name] = value
}

// announcedLimits returns the limits of the connection as Options.AnnounceLimits describes them,
// or nil if it is nil or panics: a part of them would mislead the client.
func (c *Conn) announcedLimits(ctx context.Context) (limits []*protocol.Limit) {
	announce := c.router.opts.AnnounceLimits
	if announce == nil {
		return nil
	}
	c.router.hooks.Call(ctx, "AnnounceLimits", func() {
		var groups announced.Limits
		now, sizes, identity := time.Now(), c.router.sizesByType(), c.identity.Load()
		for _, typ := range slices.Sorted(maps.Keys(sizes)) {
			addLimits(&groups, typ, announce(c.ingressContext(typ, identity, sizes[typ], now)))
		}
		limits = groups.All()
	})
	return limits
}

// sizesByType returns the largest size of the messages of every type that ingress sees.
func (r *Router) sizesByType() map[string]int64 {
	sizes := map[string]int64{}
	for _, typ := range []string{protocol.TypeHeartbeat, protocol.TypeAbort, protocol.TypeCredit, protocol.TypeAnswer} {
		sizes[typ] = r.opts.Limits.MaxMessageBytes
	}
	if r.resumes() {
		sizes[protocol.TypeAck] = r.opts.Limits.MaxMessageBytes
	}
	for typ, route := range r.routes {
		sizes[typ] = route.maxBytes
	}
	return sizes
}
