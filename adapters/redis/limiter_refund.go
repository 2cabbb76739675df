package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// Refund returns tokens to key's bucket, which never holds more than its capacity. Other
// processes may deny the key for up to a second more.
func (l *Limiter) Refund(ctx context.Context, key limit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("redis: refund is %d; it must not be negative", tokens)
	}
	if tokens == 0 {
		return nil
	}
	_, err := l.call(ctx, &key, -l.units.RefundUnits(tokens), 0)
	l.denials.Invalidate(key.Hash(l.seed), l.now())
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
	c := &scriptCall{Request: []any{1, keyName(l.prefix, keyParts(key)), d.Microseconds()}}
	if l.time != nil {
		c.Request = append(c.Request, l.time()...)
	}
	err := l.blocks.Do(ctx, c)
	l.denials.Invalidate(key.Hash(l.seed), l.now())
	return err
}

// Reserve takes cost tokens from key's bucket if it holds them, or will within maxWait.
func (l *Limiter) Reserve(ctx context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if err := limit.CheckReserve(cost, maxWait); err != nil {
		return limit.Decision{}, fmt.Errorf("redis: %w", err)
	}
	costUnits, ahead := l.units.CostUnits(cost), maxWait.Microseconds()*l.units.PerMicro()
	r, err := l.call(ctx, &key, costUnits, ahead)
	if err != nil {
		return limit.Decision{}, err
	}
	if r.state.BlockedFor > 0 {
		return r.state.Decision(costUnits, &l.units), nil
	}
	d := l.units.ReserveDecision(r.state.Units, costUnits, maxWait)
	if d.Allowed {
		r.state.Units -= costUnits
		l.denials.Learn(key.Hash(l.seed), r.state, costUnits, r.sent, r.received)
	}
	return d, nil
}
