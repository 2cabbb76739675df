package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in PostgreSQL, so that
// many processes share it. Its decisions equal those of a cooldown in memory, on the clock of the
// server. A key in a penalty is denied without a round trip, for at most a second. See [Limits] for
// what all limiters of this package have in common.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment. Each of them counts the calls in its own window and observes every
// penalty until its end. The calls of a key that they admit in any interval are at most the largest
// Max, plus the largest Max/Window times the length of the interval.
//
// If the server's clock goes backwards, a key's calls and penalty move with it at the next call: a
// penalty then lasts at most its length again. If the clock goes forward, the calls and penalties
// that it passes end. A Cooldown is safe for concurrent use.
type Cooldown struct {
	*limitRecords
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

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon, once
// for every penalty that a call of this process starts. NewCooldown panics if the policy is not
// valid.
func (l *Limits) NewCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	numbers := fixedPolicy(policy.Description(), policy.Window.Microseconds(), policy.Penalty.Microseconds())
	return &Cooldown{
		limitRecords: newLimitRecords(l, limitLog, l.keysOf("cooldown", keyname.OfCooldown(policy)), numbers, (*limit.Take).ValidateCooldown),
		policy:       policy,
		onPenalty:    onPenalty,
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

// penalize calls the hook for a penalty that starts.
func (c *Cooldown) penalize(key limit.Key, cost int64, reply *batch.RecordReply, d limit.Decision) {
	c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: reply.Used + cost, RetryAfter: d.RetryAfter})
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(ctx context.Context, key limit.Key) (int64, error) {
	reply, err := c.limits.reply(ctx, c.call(&key, c.limitRecords.policy.Load(), batch.RecordTake{What: batch.Look}))
	if err != nil {
		return 0, err
	}
	return reply.numbers[1], nil
}

// resetPage is how many keys ResetAll finds at a time.
const resetPage = 1000

// ResetAll removes the records of all keys, one by one. Other processes may deny keys for up to a
// second more.
func (c *Cooldown) ResetAll(ctx context.Context) error {
	if err := c.resetNamed(ctx, c.keys.prefix); err != nil {
		return err
	}
	after, before := c.keys.prefix+":", c.keys.prefix+";" // a semicolon follows the colon
	for {
		rows, err := c.limits.pool.Query(ctx, c.limits.sql.keys, []byte(after), []byte(before), resetPage)
		if err != nil {
			return fmt.Errorf("postgres: cooldown: %w", c.limits.explain(err))
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			return fmt.Errorf("postgres: cooldown: %w", c.limits.explain(err))
		}
		for _, key := range keys {
			after = string(key)
			if err := c.resetNamed(ctx, after); err != nil {
				return err
			}
		}
		if len(keys) < resetPage {
			c.limitRecords.policy.Load().InvalidateAll(c.limits.now())
			return nil
		}
	}
}

// resetNamed is Reset for the record of a key.
func (c *Cooldown) resetNamed(ctx context.Context, name string) error {
	_, err := c.limits.do(ctx, c.keys.named(name, limitArgs{limitLog, opReset}))
	return err
}
