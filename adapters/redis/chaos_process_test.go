package redis_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
)

// chaosKeys is how many buckets the processes share.
const chaosKeys = 2

// chaosTimeout is the deadline of each call of a process.
const chaosTimeout = 100 * time.Millisecond

// startProcess starts what a process does: it consumes from shared buckets and changes its policy at
// random, until the context ends.
func (c *chaos) startProcess(ctx context.Context, running *sync.WaitGroup, first int) {
	client := goredis.NewClient(&goredis.Options{
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: chaosTimeout}).DialContext(ctx, network, c.addr.Load().(string))
		},
		ContextTimeoutEnabled: true,
		DialTimeout:           chaosTimeout,
	})
	c.t.Cleanup(func() { _ = client.Close() })
	limiter := redis.NewLimiter(client, chaosPolicies[first])
	p := &chaosProcess{limiter, limit.AllOf(limiter, redis.NewLimiter(client, limit.PerSecond(1_000_000).Named("generous")))}
	for range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				if rand.IntN(50) == 0 {
					assert.NoError(c.t, limiter.SetPolicy(chaosPolicies[rand.IntN(len(chaosPolicies))]))
				}
				key, sent := rand.IntN(chaosKeys), time.Now().UnixNano()
				tokens, err := p.call(ctx, limit.Key{"user", fmt.Sprint(key)})
				c.log.add(key, chaosGrant{tokens, sent, time.Now().UnixNano()}, err)
				time.Sleep(rand.N(5 * time.Millisecond))
			}
		})
	}
}

// A chaosProcess makes random calls.
type chaosProcess struct {
	limiter *redis.Limiter
	both    limit.Limiter // the limiter and a generous one
}

// call returns how many tokens a random call was granted.
func (p *chaosProcess) call(ctx context.Context, key limit.Key) (tokens int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, chaosTimeout)
	defer cancel()
	var d limit.Decision
	tokens = 1 + rand.Int64N(3)
	switch rand.IntN(6) {
	case 0:
		d, err = limit.ConsumeKeeping(ctx, p.limiter, key, tokens, 2)
	case 1:
		tokens, d, err = limit.ConsumeUpTo(ctx, p.limiter, key, 5)
	case 2:
		d, err = limit.Consume(ctx, p.both, key, tokens)
	case 3:
		if rand.IntN(10) == 0 {
			return 0, limit.Charge(ctx, p.limiter, key, 1) // takes tokens and grants none
		}
		fallthrough
	default:
		d, err = limit.Consume(ctx, p.limiter, key, tokens)
	}
	if err != nil || !d.Allowed {
		return 0, err
	}
	return tokens, nil
}

// A chaosLog contains what was granted, and errors. It is safe for concurrent use.
type chaosLog struct {
	mu     sync.Mutex
	grants [chaosKeys][]chaosGrant
	errors []chaosGrant
}

// A chaosGrant is a call of a process. The server decided at some time between sent and received,
// in nanoseconds since 1970.
type chaosGrant struct {
	tokens         int64
	sent, received int64
}

func (l *chaosLog) add(key int, g chaosGrant, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.errors = append(l.errors, g)
	case g.tokens > 0:
		l.grants[key] = append(l.grants[key], g)
	}
}

// countGrants returns how many grants of all keys were sent after a time and received before
// another.
func (l *chaosLog) countGrants(after, before int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, grants := range l.grants {
		n += countWithin(grants, after, before)
	}
	return n
}

// countErrors does the same with errors.
func (l *chaosLog) countErrors(after, before int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return countWithin(l.errors, after, before)
}

func countWithin(grants []chaosGrant, after, before int64) (n int) {
	for _, g := range grants {
		if g.sent >= after && g.received <= before {
			n++
		}
	}
	return n
}

// exceedsBound returns the largest excess, in billionths of a token, of the grants in any interval over
// the capacity and the refill in that interval. It is not positive if the bound holds. A grant counts in
// an interval that contains it from sent to received. Grants of negative tokens are allowances.
func exceedsBound(grants []chaosGrant) (excess int64) {
	byEnd := slices.Clone(grants)
	slices.SortFunc(byEnd, func(a, b chaosGrant) int {
		return cmp.Or(cmp.Compare(a.received, b.received), cmp.Compare(a.tokens, b.tokens)) // allowances first
	})
	excess = -chaosCapacity * 1e9
	for _, first := range byEnd {
		sum := int64(0)
		for _, g := range byEnd {
			if g.sent >= first.sent {
				sum += g.tokens * 1e9
				excess = max(excess, sum-chaosPerSecond*(g.received-first.sent)-chaosCapacity*1e9)
			}
		}
	}
	return excess
}
