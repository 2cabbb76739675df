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
	l.take(key.Hash(l.seed), &request{kind: refund, tokens: tokens})
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
	l.shards[hash>>l.shift].block(hash, l.clock()+d.Microseconds(), l)
	return nil
}

// Reserve takes cost tokens from key's bucket if it holds them, or will within maxWait.
func (l *Limiter) Reserve(_ context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if err := limit.CheckReserve(cost, maxWait); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	return l.consume(&key, &request{tokens: cost, maxWait: maxWait.Microseconds()}), nil
}

// ConsumeKeeping takes cost tokens from key's bucket if it holds them and keep tokens more.
func (l *Limiter) ConsumeKeeping(_ context.Context, key limit.Key, cost, keep int64) (limit.Decision, error) {
	if cost < 0 || keep < 0 {
		return limit.Decision{}, fmt.Errorf("memory: cost is %d and keep is %d; they must not be negative", cost, keep)
	}
	return l.consume(&key, &request{tokens: cost, keep: keep}), nil
}

// ConsumeUpTo takes as many tokens as key's bucket holds, but at most most of them.
func (l *Limiter) ConsumeUpTo(_ context.Context, key limit.Key, most int64) (int64, limit.Decision, error) {
	if most < 0 {
		return 0, limit.Decision{}, fmt.Errorf("memory: most is %d; it must not be negative", most)
	}
	have, t := l.take(key.Hash(l.seed), &request{kind: upTo, tokens: most})
	granted := min(most, t.units.WholeTokens(have))
	return granted, t.decision(have, &request{tokens: max(granted, min(most, 1))}), nil
}

// Charge takes cost tokens from key's bucket, also if the bucket holds less.
func (l *Limiter) Charge(_ context.Context, key limit.Key, cost int64) error {
	if cost < 0 {
		return fmt.Errorf("memory: charge is %d; it must not be negative", cost)
	}
	_, t := l.take(key.Hash(l.seed), &request{kind: charge, tokens: cost})
	if u := &t.units; u.CostUnits(cost) > u.Full() {
		return fmt.Errorf("memory: charge is %d; it must be at most the capacity, %d", cost, u.WholeTokens(u.Full()))
	}
	return nil
}
