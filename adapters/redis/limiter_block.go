package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

var _ limit.Blocker = (*Limiter)(nil)

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
	l.policy.Load().Invalidate(key.Hash(l.seed), l.now())
}
