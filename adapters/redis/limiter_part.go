package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

var (
	_ limit.Reserver       = (*Limiter)(nil)
	_ limit.Keeper         = (*Limiter)(nil)
	_ limit.PartialLimiter = (*Limiter)(nil)
	_ limit.Charger        = (*Limiter)(nil)
)

// A partRequest takes the largest multiple of divisor that is at most units and leaves a balance
// of at least lowest.
type partRequest struct {
	units   int64
	lowest  int64 // negative for a deficit
	divisor int64
}

// all returns a request that takes all units or none. A cost above the capacity takes none.
func (p *bucketPolicy) all(units, lowest int64) partRequest {
	if units > p.units.Full() {
		units = 0
	}
	return partRequest{units, lowest, max(units, 1)}
}

// taken returns what a request takes from a bucket.
func (r partRequest) taken(s batch.State) int64 {
	if s.BlockedFor > 0 || s.Units <= r.lowest {
		return 0
	}
	return min(r.units, (s.Units-r.lowest)/r.divisor*r.divisor)
}

// callPart returns the state of key's bucket before the request. It remembers a state after
// which a call of needUnits would be denied.
func (l *Limiter) callPart(ctx context.Context, p *bucketPolicy, key *limit.Key, hash uint64, r partRequest, needUnits int64) (batch.State, error) {
	args := append([]any{1, keyname.Join(l.prefix, keyname.Parts(key))}, p.args[:]...)
	args = append(args, r.units, r.lowest, r.divisor)
	if l.time != nil {
		args = append(args, l.time()...)
	}
	sent, c := l.now(), &scriptCall{Request: args}
	if err := l.parts.Do(ctx, c); err != nil {
		return batch.State{}, err
	}
	before := bucketState(c.Response[0])
	after := before
	after.Units -= r.taken(before)
	p.denials.Learn(hash, after, needUnits, sent, l.now())
	return before, nil
}

// Reserve takes cost tokens from key's bucket if it holds them, or will within maxWait.
func (l *Limiter) Reserve(ctx context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if err := limit.CheckReserve(cost, maxWait); err != nil {
		return limit.Decision{}, fmt.Errorf("redis: %w", err)
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	costUnits, ahead := p.units.CostUnits(cost), p.ahead(maxWait)
	state, ok := p.denials.Denies(hash, l.now(), costUnits, ahead, &p.units)
	if !ok {
		var err error
		if state, err = l.callPart(ctx, p, &key, hash, p.all(costUnits, -ahead), costUnits); err != nil {
			return limit.Decision{}, err
		}
	}
	return p.reserveDecision(state, costUnits, maxWait), nil
}

// ahead returns the units that return within maxWait.
func (p *bucketPolicy) ahead(maxWait time.Duration) int64 {
	return maxWait.Microseconds() * p.units.PerMicro()
}

func (p *bucketPolicy) reserveDecision(s batch.State, costUnits int64, maxWait time.Duration) limit.Decision {
	if s.BlockedFor > 0 {
		return s.Decision(costUnits, &p.units)
	}
	return p.units.ReserveDecision(s.Units, costUnits, maxWait)
}

// ConsumeKeeping takes cost tokens from key's bucket if at least keep tokens are left, or none
// of them.
func (l *Limiter) ConsumeKeeping(ctx context.Context, key limit.Key, cost, keep int64) (limit.Decision, error) {
	if keep < 0 {
		return limit.Decision{}, fmt.Errorf("redis: keep is %d; it must not be negative", keep)
	}
	if keep == 0 || cost < 0 {
		return l.Consume(ctx, key, cost)
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	costUnits, keepUnits := p.units.CostUnits(cost), p.units.CostUnits(keep)
	r, needUnits := p.all(costUnits, keepUnits), costUnits+keepUnits
	if costUnits > p.units.Full() || keepUnits > p.units.Full()-costUnits { // never allowed
		r, needUnits = p.all(0, 0), p.units.Full()+1
	}
	state, ok := p.denials.Denies(hash, l.now(), needUnits, 0, &p.units)
	if !ok {
		var err error
		if state, err = l.callPart(ctx, p, &key, hash, r, needUnits); err != nil {
			return limit.Decision{}, err
		}
	}
	if state.BlockedFor > 0 {
		return state.Decision(needUnits, &p.units), nil
	}
	return p.units.KeepDecision(state.Units, costUnits, keepUnits), nil
}

// ConsumeUpTo takes as many tokens as key's bucket holds, but at most most of them, and returns
// how many.
func (l *Limiter) ConsumeUpTo(ctx context.Context, key limit.Key, most int64) (granted int64, d limit.Decision, err error) {
	if most < 0 {
		return 0, limit.Decision{}, fmt.Errorf("redis: most is %d; it must not be negative", most)
	}
	if most == 0 {
		d, err = l.Consume(ctx, key, 0)
		return 0, d, err
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	token := p.units.PerToken()
	if state, ok := p.denials.Denies(hash, l.now(), token, 0, &p.units); ok {
		return 0, state.Decision(token, &p.units), nil
	}
	r := partRequest{min(p.units.CostUnits(most), p.units.Full()), 0, token}
	state, err := l.callPart(ctx, p, &key, hash, r, token)
	if err != nil {
		return 0, limit.Decision{}, err
	}
	taken := r.taken(state)
	return taken / token, state.Decision(max(taken, token), &p.units), nil
}

// Charge takes cost tokens from key's bucket, also if the bucket holds less: the deficit is then
// at most cost.
func (l *Limiter) Charge(ctx context.Context, key limit.Key, cost int64) error {
	p := l.policy.Load()
	if capacity := p.units.Full() / p.units.PerToken(); cost < 0 || cost > capacity {
		return fmt.Errorf("redis: charge is %d; it must be from 0 to the capacity of %d", cost, capacity)
	}
	if cost == 0 {
		return nil
	}
	costUnits := p.units.CostUnits(cost)
	_, err := l.callPart(ctx, p, &key, key.Hash(l.seed), partRequest{costUnits, -costUnits, 1}, costUnits)
	return err
}
