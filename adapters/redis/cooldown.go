package redis

import (
	"context"
	"fmt"
	"strings"

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
// the window nor a penalty. A Cooldown is safe for concurrent use. Beside its own methods, it has
// those of a [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer] and
// [adapter.Describer], and Count, which returns how many admitted calls of a key are in the window.
type Cooldown struct {
	*cooldown
	records *records
}

type cooldown = batch.Cooldown

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that a call of this process starts. NewCooldown panics if the policy is
// not valid or the client is nil. It does not connect to Redis.
func NewCooldown(client goredis.UniversalClient, policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	r := newRecords(client, "cooldown", keyname.OfCooldown(policy), kindLog)
	return &Cooldown{batch.NewCooldown("redis", r, policy, onPenalty), r}
}

// ResetAll removes the records of all keys, one by one. Other processes may deny keys for up to
// a second more.
func (c *Cooldown) ResetAll(ctx context.Context) error {
	withoutParts := c.records.client.Unlink(ctx, c.records.prefix).Err()
	err := eachMaster(ctx, c.records.client, func(ctx context.Context, client *goredis.Client) error {
		keys := client.Scan(ctx, 0, glob(c.records.prefix)+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	})
	batch.ForgetDenials(c.cooldown)
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
