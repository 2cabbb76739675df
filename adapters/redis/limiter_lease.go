package redis

import (
	"context"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// leaseArgs returns the last arguments of a script that makes a lease or a mark, if there is one.
func leaseArgs(l batch.Lease) []any {
	switch {
	case l.Length == 0:
		return nil
	case l.IsMark():
		return []any{0, l.Length.Microseconds(), limit.MaxMarks}
	default:
		return []any{l.ID, l.Length.Microseconds(), limit.MaxLeases}
	}
}

// settle settles a lease of a bucket.
func (l *Limiter) settle(ctx context.Context, p *bucketPolicy, key *limit.Key, what batch.Take) error {
	args := append([]any{1, keyname.Join(l.prefix, keyname.Parts(key))}, p.args[:]...)
	args = append(args, what.Units, what.Lease.ID, what.Lease.Excess, what.Lease.Returns, limit.MaxLeases)
	if l.time != nil {
		args = append(args, l.time()...)
	}
	return l.settlements.Do(ctx, &scriptCall{Request: args})
}
