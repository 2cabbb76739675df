package durableobject

import (
	"context"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in Durable Objects, so
// that processes everywhere share it. Its decisions equal those of a cooldown in memory, on the
// clock of the object, which has whole milliseconds: waits are rounded up. Requests, denials
// without one, and errors are as those of a [Limiter].
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment. Each of them counts the calls in its own window and observes
// every penalty until its end. The calls of a key that they admit in any interval are at most the
// largest Max, plus the largest Max/Window times the length of the interval.
//
// If the object's clock goes backwards, a key's calls and penalty move with it at the next call: a
// penalty then lasts at most its length again. If the clock goes forward, the calls and penalties
// that it passes end. A Cooldown is safe for concurrent use.
type Cooldown struct {
	*counts
	policy    limit.CooldownPolicy
	onPenalty func(limit.Penalty)
}

var (
	_ limit.Checker    = (*Cooldown)(nil)
	_ limit.Blocker    = (*Cooldown)(nil)
	_ limit.Rememberer = (*Cooldown)(nil)
	_ limit.Batcher    = (*Cooldown)(nil)
	_ limit.Describer  = (*Cooldown)(nil)
)

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that a call of this process starts. NewCooldown panics if the policy is
// not valid or the client is nil. It does not connect to the Worker.
func NewCooldown(client *Client, policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	numbers := newCountPolicy(policy.Description(), policy.Max, policy.Window.Microseconds(), policy.Penalty.Microseconds())
	return &Cooldown{
		counts:    newCounts(client, "cooldown", keyname.OfCooldown(policy), numbers, (*limit.Take).ValidateCooldown),
		policy:    policy,
		onPenalty: onPenalty,
	}
}

// Take counts as many calls of key as take has cost, or none of them.
func (c *Cooldown) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, reply, err := c.take(ctx, &key, &take)
	if err == nil && reply.Outcome == batch.OutcomePenaltyStarts && take.Mode != limit.Looking && c.onPenalty != nil {
		c.penalize(key, take.Cost, &reply, d)
	}
	return d, err
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(ctx context.Context, key limit.Key) (int64, error) {
	reply, err := c.call(ctx, c.counts.policy.Load(), &key, batch.RecordTake{What: batch.Look})
	return reply.Used, err
}

func (c *Cooldown) jointPart(key *limit.Key, take limit.Take) (jointPart, error) {
	part, err := c.countPart(key, take)
	if err != nil {
		return nil, err
	}
	if c.onPenalty != nil {
		part.onPenalty = func(reply *batch.RecordReply, d limit.Decision) { c.penalize(*key, take.Cost, reply, d) }
	}
	return part, nil
}

// penalize calls the hook for a penalty that starts.
func (c *Cooldown) penalize(key limit.Key, cost int64, reply *batch.RecordReply, d limit.Decision) {
	c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: reply.Used + cost, RetryAfter: d.RetryAfter})
}
