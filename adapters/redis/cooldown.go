package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in Redis, so that many
// processes share it. Its decisions equal those of a cooldown in memory, on the clock of the
// Redis server. A key in a penalty is denied without a round trip, for at most a second.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment. Each of them counts the calls in its own window and observes
// every penalty until its end. The calls of a key that they admit in any interval are at most the
// largest Max, plus the largest Max/Window times the length of the interval.
//
// If the server's clock goes backwards, a key's calls and penalty move with it at the next call: a
// penalty then lasts at most its length again. If the clock goes forward, the calls and penalties
// that it passes end.
//
// A key's record is a string under penstock:cooldown:<policy>:<part>:<part>... of 28 bytes and 7
// for each of its last Max calls, up to a quarter more. It expires when it has neither calls in
// the window nor a penalty. A Cooldown is safe for concurrent use.
type Cooldown struct {
	*records
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
// not valid or the client is nil. It does not connect to Redis.
func NewCooldown(client goredis.UniversalClient, policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	args := []any{policy.Max, policy.Window.Microseconds(), policy.Penalty.Microseconds()}
	return &Cooldown{
		records: newRecords(client, "cooldown", keyname.OfCooldown(policy), kindLog,
			&recordPolicy{RecordPolicy: batch.NewRecordPolicy(policy.Description()), args: func(*limit.Key) ([]any, any) { return args, nil }}, (*limit.Take).ValidateCooldown),
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

// RemembersDenial returns the denial of a Take if this process knows it without asking Redis.
func (c *Cooldown) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return c.remembers(&key, &take)
}

// Block denies key for d; after that, nothing counts.
func (c *Cooldown) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	return c.block(ctx, &key, d)
}

// BatchesWith reports whether other is a limiter of this package with the same client. On a Cluster it
// returns false, because the keys may be on different nodes.
func (c *Cooldown) BatchesWith(other limit.Limiter) bool { return batchesWith(c, other) }

func (c *Cooldown) part(key *limit.Key, take limit.Take) (jointPart, error) {
	part, err := c.records.part(key, take)
	if p, ok := part.(*recordPart); ok && c.onPenalty != nil {
		p.onPenalty = func(reply *batch.RecordReply, d limit.Decision) { c.penalize(*key, take.Cost, reply, d) }
	}
	return part, err
}

// penalize calls the hook for a penalty that starts.
func (c *Cooldown) penalize(key limit.Key, cost int64, reply *batch.RecordReply, d limit.Decision) {
	c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: reply.Used + cost, RetryAfter: d.RetryAfter})
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(ctx context.Context, key limit.Key) (int64, error) {
	reply, err := c.call(ctx, c.records.policy.Load(), &key, batch.RecordTake{What: batch.Look})
	return reply.Used, err
}

// Reset removes the record of key: its calls, its penalty and a block. Other processes may deny the key
// for up to a second more.
func (c *Cooldown) Reset(ctx context.Context, key limit.Key) error { return c.reset(ctx, key) }

// ResetAll removes the records of all keys, one by one. Other processes may deny keys for up to
// a second more.
func (c *Cooldown) ResetAll(ctx context.Context) error {
	withoutParts := c.client.Unlink(ctx, c.prefix).Err()
	err := eachMaster(ctx, c.client, func(ctx context.Context, client *goredis.Client) error {
		keys := client.Scan(ctx, 0, glob(c.prefix)+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	})
	c.records.policy.Load().InvalidateAll(c.now())
	if err = errors.Join(withoutParts, err); err != nil {
		return fmt.Errorf("redis: cooldown: %w", err)
	}
	return nil
}

// eachMaster calls f with a client of every node that holds keys.
func eachMaster(ctx context.Context, client goredis.UniversalClient, f func(context.Context, *goredis.Client) error) error {
	switch client := client.(type) {
	case *goredis.Client:
		return f(ctx, client)
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, f)
	case *goredis.Ring:
		return client.ForEachShard(ctx, f)
	default:
		return fmt.Errorf("the nodes of a %T are unknown; use a *redis.Client, *redis.ClusterClient or *redis.Ring", client)
	}
}

// glob returns a pattern that matches only s.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
