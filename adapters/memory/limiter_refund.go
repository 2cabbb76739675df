package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// Refund returns tokens to key's bucket, which never holds more than its capacity.
func (l *Limiter) Refund(_ context.Context, key limit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("memory: refund is %d; it must not be negative", tokens)
	}
	l.take(key.Hash(l.seed), -l.units.RefundUnits(tokens), 0)
	return nil
}

// Reset fills key's bucket and ends a block.
func (l *Limiter) Reset(_ context.Context, key limit.Key) error {
	hash := key.Hash(l.seed)
	l.shards[hash>>l.shift].fill(hash)
	return nil
}

// Block denies key for d; after that its bucket is full. A blocked key is never evicted, and
// has a bucket even if there is no room for one.
func (l *Limiter) Block(_ context.Context, key limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	hash := key.Hash(l.seed)
	l.shards[hash>>l.shift].block(hash, d, l)
	return nil
}

// Reserve takes cost tokens from key's bucket if it holds them, or will within maxWait.
func (l *Limiter) Reserve(_ context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if err := limit.CheckReserve(cost, maxWait); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	ahead := maxWait.Microseconds() * l.units.PerMicro()
	// The bucket may have a deficit of ahead afterwards, so maxAhead must grow first.
	for known := l.maxAhead.Load(); ahead > known && !l.maxAhead.CompareAndSwap(known, ahead); {
		known = l.maxAhead.Load()
	}
	costUnits := l.units.CostUnits(cost)
	have := l.take(key.Hash(l.seed), costUnits, ahead)
	if have <= blocked {
		return l.units.BlockedDecision(blockedFor(have, &l.units), costUnits), nil
	}
	return l.units.ReserveDecision(have, costUnits, maxWait), nil
}
