package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// Refund gives tokens back to key's bucket, which never holds more than its capacity.
// Other processes may refuse the key for up to a second more.
func (l *Limiter) Refund(ctx context.Context, key ratelimit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("redis: refund is %d; it must not be negative", tokens)
	}
	if tokens == 0 {
		return nil
	}
	_, err := l.call(ctx, &key, -l.units.Back(tokens), 0)
	l.denials.overrule(key.Hash(l.seed), l.now())
	return err
}

// Reset fills key's bucket and ends a block. Other processes may refuse the key for up to a
// second more.
func (l *Limiter) Reset(ctx context.Context, key ratelimit.Key) error {
	return l.block(ctx, &key, 0)
}

// Block refuses key for d, and leaves its bucket full.
func (l *Limiter) Block(ctx context.Context, key ratelimit.Key, d time.Duration) error {
	if err := ratelimit.CheckBlock(d); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return l.block(ctx, &key, d)
}

func (l *Limiter) block(ctx context.Context, key *ratelimit.Key, d time.Duration) error {
	c := &call{args: []any{1, name(l.prefix, parts(key)), d.Microseconds()}}
	if l.time != nil {
		c.args = append(c.args, l.time()...)
	}
	err := l.blocks.do(ctx, c)
	l.denials.overrule(key.Hash(l.seed), l.now())
	return err
}

// Reserve takes cost tokens from key's bucket, if they are there within maxWait.
func (l *Limiter) Reserve(ctx context.Context, key ratelimit.Key, cost int64, maxWait time.Duration) (ratelimit.Decision, error) {
	if err := ratelimit.CheckReserve(cost, maxWait); err != nil {
		return ratelimit.Decision{}, fmt.Errorf("redis: %w", err)
	}
	need, wait := l.units.Need(cost), maxWait.Microseconds()*l.units.PerMicro()
	c, err := l.call(ctx, &key, need, wait)
	if err != nil {
		return ratelimit.Decision{}, err
	}
	if left, is := blockedFor(c.have); is {
		return l.units.Blocked(left, need), nil
	}
	d := l.units.Reserve(c.have, need, maxWait)
	if d.Allowed {
		l.denials.learn(key.Hash(l.seed), c.have-need, need, c.sent, c.came)
	}
	return d, nil
}
