package router

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// This file has the limits that protect a server on which the application has set none. They are counted
// in the memory of this node.

// Unlimited is the value of a field of [Limits], or of Rate.PerSecond, that bounds nothing.
const Unlimited = math.MaxInt

// A Rate bounds how often something happens: PerSecond on average, and Burst at once, like a token
// bucket. The zero Rate is the default of its field in [Limits]; a Burst of 0 is PerSecond.
type Rate struct{ PerSecond, Burst int }

// withDefault returns the rate, or its default. It panics if the rate is not valid.
func (r Rate) withDefault(field string, value Rate) Rate {
	if r == (Rate{}) {
		return value
	}
	if r.PerSecond < 1 || r.Burst < 0 {
		panic(fmt.Sprintf("router: Limits.%s is %+v; PerSecond must be at least 1, or Unlimited, and Burst must not be negative", field, r))
	}
	if r.Burst == 0 {
		r.Burst = r.PerSecond
	}
	return r
}

// A rateBucket is a token bucket: the time at which it will be full, since the router was created.
// The zero bucket is full. It is safe for concurrent use.
type rateBucket struct{ fullAt atomic.Int64 }

// sinceStart returns when something has happened, on the clock of rate buckets.
func (r *Router) sinceStart(at time.Time) time.Duration { return at.Sub(r.started) }

// take takes tokens if there are enough. Otherwise it returns a refusal.
func (b *rateBucket) take(r Rate, now time.Duration, tokens int, name string) *LimitExceeded {
	if r.PerSecond == Unlimited {
		return nil
	}
	cost, size := r.cost(tokens), r.cost(r.Burst)
	for {
		fullAt := b.fullAt.Load()
		next := max(fullAt, int64(now)) + cost
		if wait := next - int64(now) - size; wait > 0 {
			return &LimitExceeded{Kind: LimitRate, Policy: name, Observed: int64(tokens), Limit: int64(r.Burst), RetryAfter: max(time.Duration(wait), time.Millisecond)}
		}
		if b.fullAt.CompareAndSwap(fullAt, next) {
			return nil
		}
	}
}

// owe takes tokens that have been used already. The bucket may then hold less than none.
func (b *rateBucket) owe(r Rate, now time.Duration, tokens int) {
	if r.PerSecond == Unlimited || tokens <= 0 {
		return
	}
	cost := r.cost(tokens)
	for {
		fullAt := b.fullAt.Load()
		if b.fullAt.CompareAndSwap(fullAt, max(fullAt, int64(now))+cost) {
			return
		}
	}
}

// giveBack returns tokens that take has taken.
func (b *rateBucket) giveBack(r Rate, tokens int) {
	if r.PerSecond != Unlimited {
		b.fullAt.Add(-r.cost(tokens))
	}
}

func (b *rateBucket) isFull(now time.Duration) bool { return b.fullAt.Load() <= int64(now) }

// cost returns the time in which tokens return, in nanoseconds.
func (r Rate) cost(tokens int) int64 {
	return int64(float64(tokens) / float64(r.PerSecond) * float64(time.Second))
}

// An address is what the node counts for the clients of one IPv4 address or IPv6 /64 network.
type address struct {
	conns int // slots in use; guarded by registry.mu

	handshakes, messages, failedAuths rateBucket
}

// isIdleLocked reports whether nothing is known of the address that an unknown one has not. It
// needs registry.mu.
func (a *address) isIdleLocked(now time.Duration) bool {
	return a.conns == 0 && a.handshakes.isFull(now) && a.messages.isFull(now) && a.failedAuths.isFull(now)
}

// chargeMessage charges a received message to its connection and its address, or returns a refusal.
func (c *Conn) chargeMessage(at time.Time) *LimitExceeded {
	limits, now := &c.router.opts.Limits, c.router.sinceStart(at)
	if rejection := c.rate.take(limits.MessagesPerConn, now, 1, "MessagesPerConn"); rejection != nil {
		return rejection
	}
	if c.address == nil {
		return nil
	}
	rejection := c.address.messages.take(limits.MessagesPerIP, now, 1, "MessagesPerIP")
	if rejection != nil {
		c.rate.giveBack(limits.MessagesPerConn, 1)
	}
	return rejection
}

// workPerMessage is how many publications or members cost about as much as a message.
const workPerMessage = 4

// chargeWork charges what a message of the protocol has cost more than an ordinary one.
func (c *Conn) chargeWork(messages int) {
	if messages == 0 {
		return
	}
	limits, now := &c.router.opts.Limits, c.router.sinceStart(time.Now())
	c.rate.owe(limits.MessagesPerConn, now, messages)
	if c.address != nil {
		c.address.messages.owe(limits.MessagesPerIP, now, messages)
	}
}

// failedAuthDelay is how long the answer to a failed $ws:auth waits, and with it later messages of the
// connection.
const failedAuthDelay = time.Second

// chargeAuth charges an attempt to authenticate as if it had failed, or returns an error if too
// many from the address have.
func (c *Conn) chargeAuth() error {
	if c.address == nil {
		return nil
	}
	now := c.router.sinceStart(time.Now())
	if rejection := c.address.failedAuths.take(c.router.opts.Limits.FailedAuthsPerIP, now, 1, "FailedAuthsPerIP"); rejection != nil {
		return rejection
	}
	return nil
}

// refundAuth is called if an attempt has not failed.
func (c *Conn) refundAuth() {
	if c.address != nil {
		c.address.failedAuths.giveBack(c.router.opts.Limits.FailedAuthsPerIP, 1)
	}
}
