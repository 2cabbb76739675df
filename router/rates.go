package router

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/penstock-go/penstock/internal/registry"
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

// sinceStart returns when something has happened, on the clock of the buckets.
func (r *Router) sinceStart(at time.Time) time.Duration { return at.Sub(r.created) }

// takeToken takes a token from a bucket, or returns a refusal by the rate of an option.
func takeToken(b *registry.Bucket, r Rate, now time.Duration, option string) *LimitExceeded {
	if wait := b.Take(registry.Rate(r), now, 1); wait > 0 {
		return rateExceeded(r, wait, option)
	}
	return nil
}

func rateExceeded(r Rate, wait time.Duration, option string) *LimitExceeded {
	policy := option[strings.LastIndexByte(option, '.')+1:] // which the client receives
	return &LimitExceeded{Kind: LimitRate, Policy: policy, Option: option, Observed: 1, Limit: int64(r.Burst), RetryAfter: wait}
}

// chargeMessage charges a received message to its connection and its address, or returns a refusal.
func (c *Conn) chargeMessage(at time.Time) *LimitExceeded {
	limits, now := &c.router.opts.Limits, c.router.sinceStart(at)
	if refusal := takeToken(&c.rate, limits.MessagesPerConn, now, "router.Limits.MessagesPerConn"); refusal != nil {
		return refusal
	}
	if c.address == nil {
		return nil
	}
	refusal := takeToken(&c.address.Messages, limits.MessagesPerIP, now, "router.Limits.MessagesPerIP")
	if refusal != nil {
		c.rate.GiveBack(registry.Rate(limits.MessagesPerConn), 1)
	}
	return refusal
}

// workPerMessage is how many publications or members cost about as much as a message.
const workPerMessage = 4

// failedAuthDelay is how long the answer to a failed $ws:auth waits, and with it later messages of the
// connection.
const failedAuthDelay = time.Second

// failedAuthsPerIP bounds the $ws:auth messages of an address that Options.Authenticate refuses.
var failedAuthsPerIP = Rate{PerSecond: 1, Burst: 60} //nolint:gochecknoglobals // never changed

// beginAuth begins an attempt to authenticate, which must end with endAuth, or returns an error if too many
// from the address have failed, or would if those that run fail.
func (c *Conn) beginAuth() error {
	if c.address == nil {
		return nil
	}
	now := c.router.sinceStart(time.Now())
	if wait := c.address.Auths.Begin(registry.Rate(failedAuthsPerIP), now); wait > 0 {
		return &LimitExceeded{Kind: LimitRate, Policy: "FailedAuthsPerIP", Observed: 1, Limit: int64(failedAuthsPerIP.Burst), RetryAfter: wait}
	}
	return nil
}

// endAuth ends an attempt that has failed or not.
func (c *Conn) endAuth(failed bool) {
	if c.address != nil {
		c.address.Auths.End(registry.Rate(failedAuthsPerIP), c.router.sinceStart(time.Now()), failed)
	}
}
