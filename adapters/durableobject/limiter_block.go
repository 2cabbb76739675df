package durableobject

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var _ limit.Blocker = (*Limiter)(nil)

// A blockRequest blocks a bucket for a time, or fills it if that is 0.
type blockRequest struct {
	key    string
	micros int64
}

type blockCall = batch.Call[blockRequest, struct{}]

// Reset fills key's bucket and ends a block. Other processes may deny the key for up to a second
// more.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error {
	return l.block(ctx, &key, 0)
}

// Block denies key for d; after that its bucket is full.
func (l *Limiter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	return l.block(ctx, &key, d)
}

func (l *Limiter) block(ctx context.Context, key *limit.Key, d time.Duration) error {
	err := l.blocks.Do(ctx, &blockCall{Request: blockRequest{l.keyName(key), d.Microseconds()}})
	l.invalidate(key)
	return err
}

func (l *Limiter) execBlocks(ctx context.Context, calls []*blockCall) {
	done, err := l.client.block(ctx, calls)
	for i, c := range calls {
		if c.Err = err; err == nil && !done[i] {
			c.Err = errNotDecided
		}
	}
}

// invalidate makes the next call for key ask the Worker.
func (l *Limiter) invalidate(key *limit.Key) {
	l.policy.Load().Invalidate(key.Hash(l.seed), l.now())
}
