package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// Refund gives tokens back to key's bucket, which never holds more than its capacity.
func (l *Limiter) Refund(_ context.Context, key ratelimit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("memory: refund is %d; it must not be negative", tokens)
	}
	l.take(key.Hash(l.seed), -l.units.Back(tokens), 0)
	return nil
}

// Reset fills key's bucket and ends a block.
func (l *Limiter) Reset(_ context.Context, key ratelimit.Key) error {
	hash := key.Hash(l.seed)
	l.shards[hash>>l.shift].fill(hash)
	return nil
}

// Block refuses key for d, and leaves its bucket full. A blocked key is never dropped to
// make room.
func (l *Limiter) Block(_ context.Context, key ratelimit.Key, d time.Duration) error {
	if err := ratelimit.CheckBlock(d); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	hash := key.Hash(l.seed)
	l.shards[hash>>l.shift].block(hash, d, l)
	return nil
}

// Reserve takes cost tokens from key's bucket, if they are there within maxWait.
func (l *Limiter) Reserve(_ context.Context, key ratelimit.Key, cost int64, maxWait time.Duration) (ratelimit.Decision, error) {
	if err := ratelimit.CheckReserve(cost, maxWait); err != nil {
		return ratelimit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	ahead := maxWait.Microseconds() * l.units.PerMicro()
	for most := l.ahead.Load(); ahead > most && !l.ahead.CompareAndSwap(most, ahead); {
		most = l.ahead.Load()
	}
	need := l.units.Need(cost)
	have := l.take(key.Hash(l.seed), need, ahead)
	if have <= blocked {
		return l.units.Blocked(blockedFor(have, &l.units), need), nil
	}
	return l.units.Reserve(have, need, maxWait), nil
}
