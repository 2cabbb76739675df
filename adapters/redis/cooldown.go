package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in Redis, so that many
// processes share it. Its decisions equal those of a cooldown in memory, on the clock of the
// Redis server. A key in a penalty is denied without a round trip, for at most a second.
//
// A key's record is a string under penstock:cooldown:<policy>:<part>:<part>... of 17 bytes for
// each of its last Max calls, which expires when it has neither calls in the window nor a
// penalty. It is safe for concurrent use.
type Cooldown struct {
	client    goredis.UniversalClient
	policy    limit.CooldownPolicy
	onPenalty func(limit.Penalty)
	prefix    string
	args      [3]any // arguments of the script for the policy
	seed      maphash.Seed
	penalties batch.Cache[penalty]
	calls     *scriptBatcher
	now       func() time.Duration
	time      func() []any // in tests, the time for the script
}

var _ limit.Limiter = (*Cooldown)(nil)

// A penalty is how long a cost is denied. Another cost may be denied for longer, or less.
type penalty struct {
	cost       int64
	retryAfter time.Duration
	resetAfter time.Duration
}

// zeroCost is the cost argument for which the script only reads the record.
const zeroCost = -1

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that a call of this process starts. NewCooldown panics if the policy is
// not valid or the client is nil. It does not connect to Redis.
func NewCooldown(client goredis.UniversalClient, policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if client == nil {
		panic("redis: NewCooldown needs a client")
	}
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	epoch := time.Now()
	c := &Cooldown{
		client:    client,
		policy:    policy,
		onPenalty: onPenalty,
		prefix:    keyName("penstock:cooldown", []string{cooldownName(policy)}),
		seed:      maphash.MakeSeed(),
		now:       func() time.Duration { return time.Since(epoch) },
	}
	for i, n := range []int64{policy.Max, policy.Window.Microseconds(), policy.Penalty.Microseconds()} {
		c.args[i] = strconv.FormatInt(n, 10)
	}
	c.calls = newScriptBatcher("redis: cooldown", client, newScript(cooldownConsumeLua), 4)
	return c
}

func cooldownName(p limit.CooldownPolicy) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("%d-in-%s-penalty-%s", p.Max, p.Window, p.Penalty)
}

// Consume counts cost calls of key, or none of them.
func (c *Cooldown) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	switch {
	case cost < 0:
		return limit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	case cost == 0:
		cost = zeroCost
	}
	hash := key.Hash(c.seed)
	if d, ok := c.cached(hash, cost); ok {
		return d, nil
	}
	// A cost that can never be admitted starts no penalty, and is not counted.
	counted := cost
	if cost > c.policy.Max {
		counted = zeroCost
	}
	reply, sent, err := c.call(ctx, &key, counted)
	if err != nil {
		return limit.Decision{}, err
	}
	d := c.decision(reply, cost)
	if d.Reason != 0 {
		c.penalties.Put(hash, penalty{cost, d.RetryAfter, d.ResetAfter}, sent, c.now())
	}
	if d.Reason == limit.BurstExceeded && c.onPenalty != nil {
		c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: reply[1] + cost, RetryAfter: d.RetryAfter})
	}
	return d, nil
}

// cached returns a denial if this process knows of a penalty.
func (c *Cooldown) cached(hash uint64, cost int64) (limit.Decision, bool) {
	now := c.now()
	e, ok := c.penalties.Get(hash, now)
	if !ok || cost != e.Value.cost || now-e.Sent >= e.Value.retryAfter {
		return limit.Decision{}, false
	}
	// RetryAfter counts from when the response arrived, so that it is long enough.
	age := now - e.Received
	return limit.Decision{
		Limit:      c.policy.Max,
		RetryAfter: e.Value.retryAfter - age,
		ResetAfter: e.Value.resetAfter - age,
		Reason:     limit.InCooldown,
	}, true
}

// decision converts the script's reply about a cost.
func (c *Cooldown) decision(reply []int64, cost int64) limit.Decision {
	d := limit.Decision{
		Limit:      c.policy.Max,
		Reason:     limit.Reason(reply[0]),
		RetryAfter: time.Duration(reply[2]) * time.Microsecond,
		ResetAfter: time.Duration(reply[3]) * time.Microsecond,
	}
	if d.Reason == 0 {
		d.Allowed, d.Remaining = true, max(c.policy.Max-reply[1], 0) // the record may be of a larger Max
	}
	switch {
	case cost > c.policy.Max:
		d.Allowed, d.Reason, d.RetryAfter = false, 0, limit.Never
	case cost == zeroCost:
		d.Allowed, d.Reason, d.RetryAfter = true, 0, 0
	}
	return d
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(ctx context.Context, key limit.Key) (int64, error) {
	reply, _, err := c.call(ctx, &key, zeroCost)
	if err != nil {
		return 0, err
	}
	return reply[1], nil
}

// Reset removes the record of key: its calls and its penalty. Other processes may deny the key
// for up to a second more.
func (c *Cooldown) Reset(ctx context.Context, key limit.Key) error {
	err := c.client.Del(ctx, keyName(c.prefix, keyParts(&key))).Err()
	c.penalties.Invalidate(key.Hash(c.seed), c.now())
	if err != nil {
		return fmt.Errorf("redis: cooldown: %w", err)
	}
	return nil
}

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
	c.penalties.InvalidateAll(c.now())
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

// call returns the script's reply, and when the call was sent.
func (c *Cooldown) call(ctx context.Context, key *limit.Key, cost int64) (reply []int64, sent time.Duration, err error) {
	args := append([]any{1, keyName(c.prefix, keyParts(key))}, c.args[:]...)
	args = append(args, cost)
	if c.time != nil {
		args = append(args, c.time()...)
	}
	sent = c.now()
	call := &scriptCall{Request: args}
	if err := c.calls.Do(ctx, call); err != nil {
		return nil, 0, err
	}
	return call.Response, sent, nil
}
