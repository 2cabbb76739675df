package durableobject

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.Reserver       = (*Limiter)(nil)
	_ limit.Keeper         = (*Limiter)(nil)
	_ limit.PartialLimiter = (*Limiter)(nil)
	_ limit.Charger        = (*Limiter)(nil)
)

// Reserve takes cost tokens from key's bucket if it holds them, or will within maxWait.
func (l *Limiter) Reserve(ctx context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if err := limit.CheckReserve(cost, maxWait); err != nil {
		return limit.Decision{}, fmt.Errorf("durableobject: %w", err)
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	costUnits, ahead := p.units.CostUnits(cost), maxWait.Microseconds()*p.units.PerMicro()
	state, err := l.takeUnlessDenied(ctx, p, &key, hash, batch.TakeAll(costUnits, -ahead, &p.units), costUnits)
	if err != nil {
		return limit.Decision{}, err
	}
	return state.ReserveDecision(costUnits, maxWait, &p.units), nil
}

// ConsumeKeeping takes cost tokens from key's bucket if at least keep tokens are left, or none of
// them.
func (l *Limiter) ConsumeKeeping(ctx context.Context, key limit.Key, cost, keep int64) (limit.Decision, error) {
	if keep < 0 {
		return limit.Decision{}, fmt.Errorf("durableobject: keep is %d; it must not be negative", keep)
	}
	if keep == 0 || cost < 0 {
		return l.Consume(ctx, key, cost)
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	costUnits, keepUnits := p.units.CostUnits(cost), p.units.CostUnits(keep)
	take, needUnits := batch.TakeKeeping(costUnits, keepUnits, &p.units)
	state, err := l.takeUnlessDenied(ctx, p, &key, hash, take, needUnits)
	if err != nil {
		return limit.Decision{}, err
	}
	return state.KeepDecision(costUnits, keepUnits, &p.units), nil
}

// ConsumeUpTo takes as many tokens as key's bucket holds, but at most most of them, and returns
// how many.
func (l *Limiter) ConsumeUpTo(ctx context.Context, key limit.Key, most int64) (granted int64, d limit.Decision, err error) {
	if most < 0 {
		return 0, limit.Decision{}, fmt.Errorf("durableobject: most is %d; it must not be negative", most)
	}
	if most == 0 {
		d, err = l.Consume(ctx, key, 0)
		return 0, d, err
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	token := p.units.PerToken()
	take := batch.Take{Units: min(p.units.CostUnits(most), p.units.Full()), Divisor: token}
	state, err := l.takeUnlessDenied(ctx, p, &key, hash, take, token)
	if err != nil {
		return 0, limit.Decision{}, err
	}
	taken := take.Taken(state)
	return taken / token, state.Decision(max(taken, token), &p.units), nil
}

// Charge takes cost tokens from key's bucket, also if the bucket holds less: the deficit is then
// at most cost.
func (l *Limiter) Charge(ctx context.Context, key limit.Key, cost int64) error {
	p := l.policy.Load()
	if capacity := p.units.Full() / p.units.PerToken(); cost < 0 || cost > capacity {
		return fmt.Errorf("durableobject: charge is %d; it must be from 0 to the capacity of %d", cost, capacity)
	}
	if cost == 0 {
		return nil
	}
	costUnits := p.units.CostUnits(cost)
	take := batch.Take{Units: costUnits, Lowest: -costUnits, Divisor: 1}
	_, err := l.take(ctx, p, &key, key.Hash(l.seed), take, costUnits)
	return err
}

// takeUnlessDenied returns the state of key's bucket before the call. If the bucket is known to
// hold too little for needUnits, it makes no request.
func (l *Limiter) takeUnlessDenied(ctx context.Context, p *bucketPolicy, key *limit.Key, hash uint64, take batch.Take, needUnits int64) (batch.State, error) {
	ahead := max(-take.Lowest, 0)
	if state, ok := p.denials.Denies(hash, l.now(), needUnits, ahead, &p.units); ok {
		return state, nil
	}
	return l.take(ctx, p, key, hash, take, needUnits)
}
