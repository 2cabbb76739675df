package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

var _ limit.Blocker = (*Limiter)(nil)

// Refund returns tokens to key's bucket, which never holds more than its capacity. Other
// processes may deny the key for up to a second more.
func (l *Limiter) Refund(ctx context.Context, key limit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("redis: refund is %d; it must not be negative", tokens)
	}
	if tokens == 0 {
		return nil
	}
	p := l.policy.Load()
	_, err := l.call(ctx, p, &key, -p.units.RefundUnits(tokens))
	l.invalidate(&key)
	return err
}

// Reset fills key's bucket and ends a block. Other processes may deny the key for up to a second
// more.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error {
	return l.block(ctx, &key, 0)
}

// Block denies key for d; after that its bucket is full.
func (l *Limiter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return l.block(ctx, &key, d)
}

// block blocks a bucket, or fills it if d is 0.
func (l *Limiter) block(ctx context.Context, key *limit.Key, d time.Duration) error {
	c := &scriptCall{Request: []any{1, keyname.Join(l.prefix, keyname.Parts(key)), d.Microseconds()}}
	if l.time != nil {
		c.Request = append(c.Request, l.time()...)
	}
	err := l.blocks.Do(ctx, c)
	l.invalidate(key)
	return err
}

// invalidate makes the next call for key ask Redis.
func (l *Limiter) invalidate(key *limit.Key) {
	l.policy.Load().denials.Invalidate(key.Hash(l.seed), l.now())
}
