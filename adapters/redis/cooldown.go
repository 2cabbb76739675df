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
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Cooldown is a [ratelimit.Limiter] that keeps a [ratelimit.CooldownPolicy] in Redis. It
// decides as the one in memory does, by the clock of the Redis server. A key under a
// penalty is refused in this process, for a second at most without asking again.
//
// A key's record is a string under penstock:cooldown:<policy>:<part>:<part>... that
// expires when nothing counts any more, of 17 bytes for each of its last Max.
type Cooldown struct {
	client    goredis.UniversalClient
	policy    ratelimit.CooldownPolicy
	onPenalty func(ratelimit.Penalty)
	prefix    string
	args      [3]any // what the script is told of the policy
	seed      maphash.Seed
	penalties recent[penalty]
	flights   *flights
	now       func() time.Duration
	time      func() []any // told to the script, in tests
}

var _ ratelimit.Limiter = (*Cooldown)(nil)

// A penalty is how long a cost is refused. Another one may have to wait longer, or less.
type penalty struct {
	cost  int64
	left  time.Duration
	reset time.Duration
}

// NewCooldown returns a cooldown. OnPenalty, which may be nil, is called once for every
// penalty that this process's calls start, and must return soon. It panics if the policy
// is not valid or the client is nil. It sends nothing yet.
func NewCooldown(client goredis.UniversalClient, policy ratelimit.CooldownPolicy, onPenalty func(ratelimit.Penalty)) *Cooldown {
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
		prefix:    name("penstock:cooldown", []string{cooldownName(policy)}),
		seed:      maphash.MakeSeed(),
		now:       func() time.Duration { return time.Since(epoch) },
	}
	for i, n := range []int64{policy.Max, policy.Window.Microseconds(), policy.Penalty.Microseconds()} {
		c.args[i] = strconv.FormatInt(n, 10)
	}
	c.flights = newFlights("cooldown", client, newScript(cooldownLua), 4)
	return c
}

func cooldownName(p ratelimit.CooldownPolicy) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("%d-in-%s-penalty-%s", p.Max, p.Window, p.Penalty)
}

// Consume counts cost of key, or none of it.
func (c *Cooldown) Consume(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	switch {
	case cost < 0:
		return ratelimit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	case cost == 0:
		cost = -1 // look
	}
	hash := key.Hash(c.seed)
	if d, ok := c.known(hash, cost); ok {
		return d, nil
	}
	// What can never be admitted is not punished, and need not be counted.
	asked := cost
	if cost > c.policy.Max {
		asked = -1
	}
	state, sent, err := c.ask(ctx, &key, asked)
	if err != nil {
		return ratelimit.Decision{}, err
	}
	d := c.decision(state, cost)
	if d.Reason != 0 {
		c.penalties.put(hash, penalty{cost, d.RetryAfter, d.ResetAfter}, sent, c.now())
	}
	if d.Reason == ratelimit.BurstExceeded && c.onPenalty != nil {
		c.onPenalty(ratelimit.Penalty{Policy: c.policy, Key: key, Count: state[1] + cost, RetryAfter: d.RetryAfter})
	}
	return d, nil
}

// known refuses whom a penalty keeps out, as far as this process knows.
func (c *Cooldown) known(hash uint64, cost int64) (ratelimit.Decision, bool) {
	now := c.now()
	p, ok := c.penalties.get(hash, now)
	if !ok || cost != p.value.cost || now-p.sent >= p.value.left {
		return ratelimit.Decision{}, false
	}
	// The wait is counted from when the answer came: it must be enough.
	after := now - p.came
	return ratelimit.Decision{
		Limit:      c.policy.Max,
		RetryAfter: p.value.left - after,
		ResetAfter: p.value.reset - after,
		Reason:     ratelimit.InCooldown,
	}, true
}

// decision is what a script's reply says about a cost.
func (c *Cooldown) decision(state []int64, cost int64) ratelimit.Decision {
	d := ratelimit.Decision{
		Limit:      c.policy.Max,
		Reason:     ratelimit.Reason(state[0]),
		RetryAfter: time.Duration(state[2]) * time.Microsecond,
		ResetAfter: time.Duration(state[3]) * time.Microsecond,
	}
	if d.Reason == 0 {
		d.Allowed, d.Remaining = true, max(c.policy.Max-state[1], 0) // Max may have been more
	}
	switch {
	case cost > c.policy.Max:
		d.Allowed, d.Reason, d.RetryAfter = false, 0, ratelimit.Never
	case cost < 0:
		d.Allowed, d.Reason, d.RetryAfter = true, 0, 0
	}
	return d
}

// Count returns how many of key count in the window that ends now.
func (c *Cooldown) Count(ctx context.Context, key ratelimit.Key) (int64, error) {
	state, _, err := c.ask(ctx, &key, -1)
	if err != nil {
		return 0, err
	}
	return state[1], nil
}

// Reset forgets what counts of key, and its penalty. Other processes may refuse the key
// for up to a second more.
func (c *Cooldown) Reset(ctx context.Context, key ratelimit.Key) error {
	err := c.client.Del(ctx, name(c.prefix, parts(&key))).Err()
	c.penalties.overrule(key.Hash(c.seed), c.now())
	if err != nil {
		return fmt.Errorf("redis: cooldown: %w", err)
	}
	return nil
}

// ResetAll forgets everything, key by key. Other processes may refuse keys for up to a
// second more.
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
	c.penalties.overruleAll(c.now())
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
		return fmt.Errorf("a %T does not tell its nodes", client)
	}
}

// glob is a pattern that fits s alone.
func glob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// ask returns the script's reply, and when it was asked.
func (c *Cooldown) ask(ctx context.Context, key *ratelimit.Key, cost int64) (state []int64, sent time.Duration, err error) {
	args := append([]any{1, name(c.prefix, parts(key))}, c.args[:]...)
	args = append(args, cost)
	if c.time != nil {
		args = append(args, c.time()...)
	}
	sent = c.now()
	call := &call{args: args}
	if err := c.flights.do(ctx, call); err != nil {
		return nil, 0, err
	}
	return call.state, sent, nil
}
