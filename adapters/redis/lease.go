package redis

import (
	"context"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// leaseArgs returns the last arguments of a script that makes a lease, if there is one.
func leaseArgs(l batch.Lease) []any {
	if l.ID == 0 {
		return nil
	}
	return []any{l.ID, l.Length.Microseconds(), limit.MaxLeases}
}

// settle settles a lease of a bucket.
func (l *Limiter) settle(ctx context.Context, p *bucketPolicy, key *limit.Key, what batch.Take) error {
	args := append([]any{1, keyname.Join(l.prefix, keyname.Parts(key))}, p.args[:]...)
	args = append(args, what.Units, what.Lease.ID, what.Lease.Excess, what.Lease.Returns)
	if l.time != nil {
		args = append(args, l.time()...)
	}
	return l.settlements.Do(ctx, &scriptCall{Request: args})
}

// newLease returns the lease of a take that wants one and can be allowed.
func (p *recordPolicy) newLease(take *limit.Take) batch.Lease {
	if take.Cost == 0 || take.Cost > p.max() {
		return batch.Lease{}
	}
	return batch.NewLease(take)
}

// settle settles a lease of a record. Of a take that took nothing, there is none.
func (r *records) settle(ctx context.Context, p *recordPolicy, key *limit.Key, hash uint64, take *limit.Take) error {
	receipt, used := take.Undo, min(take.Cost, maxCost)
	what, excess, lease := charge, int64(0), []any(nil)
	if receipt.Lease != 0 {
		what, excess = settle, max(min(take.Cost-receipt.Tokens, maxCost), -maxCost)
		lease = []any{receipt.Lease, receipt.Version == p.version}
	}
	if what == charge && used == 0 {
		return nil
	}
	_, _, err := r.call(ctx, p, key, what, used, excess, lease...)
	p.denials.Invalidate(hash, r.now())
	return err
}
