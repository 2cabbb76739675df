package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/registry"
)

// This file connects connections with internal/registry, which counts them.

func (r *Router) initConns() {
	limits := &r.opts.Limits
	r.conns.Init(registry.Config[*Conn]{
		MaxConns: limits.Conns, PerIP: limits.ConnsPerIP, PerUser: limits.ConnsPerUser,
		Handshakes: registry.Rate(limits.HandshakesPerIP),
		UserOf:     func(c *Conn) registry.User { return c.Identity().user() },
	})
}

// chargeHandshake charges a request to its address, or returns a refusal.
func (r *Router) chargeHandshake(c *Conn) *handshakeRefusal {
	var wait time.Duration
	if c.address, wait = r.conns.ChargeHandshake(c.ip, r.sinceStart(time.Now())); wait > 0 {
		return refusedByLimit(rateExceeded(r.opts.Limits.HandshakesPerIP, wait, "router.Limits.HandshakesPerIP"))
	}
	return nil
}

// acquireSlot acquires a slot for the request of a connection, or returns a refusal.
func (r *Router) acquireSlot(c *Conn) *handshakeRefusal {
	var refusal *registry.Refusal
	if c.address, refusal = r.conns.Acquire(c.address); refusal != nil {
		return refusedSlot(refusal)
	}
	return nil
}

// refusedSlot returns the refusal of a request that has no slot.
func refusedSlot(refusal *registry.Refusal) *handshakeRefusal {
	if refusal.Draining {
		return refusedBy(reasonDraining, errDraining)
	}
	return refusedByLimit(connsExceeded(refusal))
}

func connsExceeded(refusal *registry.Refusal) *LimitExceeded {
	return &LimitExceeded{
		Kind: LimitConnections, Option: refusal.Option, Observed: int64(refusal.Observed), Limit: int64(refusal.Limit), RetryAfter: connectionRetry,
	}
}

// connectionRetry is an estimate: when a connection will be closed is unknown.
const connectionRetry = 5 * time.Second
