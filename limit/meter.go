package limit

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Meter charges for work whose cost is known only after it, such as an answer of a language model,
// which costs as many tokens as it has. Before the work, Reserve takes an estimate from every limiter
// of the meter, or from none; after it, Settle replaces the estimate by what was really used:
//
//		meter := limit.NewMeter(10*time.Minute, perMinute, perMonth)
//		d, err := meter.Reserve(ctx, 500, user)
//		// without an error and if d.Allowed: the work
//		err = meter.Settle(ctx, d.Receipt, used, user)
//
//	  - If the work has used less, the rest returns, as if the estimate had been what was used.
//	  - If it has used more, the limiters hold a deficit of any size. Further work is denied until a
//	    bucket has refilled, or until the period of a quota ends.
//	  - If the process dies or forgets to settle, the estimate returns at the end of its lease. If the
//	    work is settled later, all that it has used is charged then.
//
// See [Take.Lease] and mode.Settling of package limit/mode for the exact rules. A Meter is safe for concurrent use.
type Meter struct {
	lease    time.Duration
	limiters []Limiter
	batcher  batcher // decides for all limiters; nil if none can
}

// settleTimeout bounds how long a settlement takes whose caller has no deadline, or is canceled.
const settleTimeout = 5 * time.Second

// NewMeter returns a meter. The lease bounds how long an estimate that is not settled stays taken: it
// should be longer than most of the work, and is whole milliseconds, at most 24 hours. Token buckets
// and quotas can be limiters of a meter, on different stores too. NewMeter panics if the lease is
// invalid, if there is no limiter, or if a limiter has no leases.
func NewMeter(lease time.Duration, limiters ...Limiter) *Meter {
	if len(limiters) == 0 {
		panic("limit: NewMeter needs a limiter")
	}
	for _, l := range limiters {
		if err := check(l, Take{Lease: lease, Receipt: true}); err != nil {
			panic(fmt.Sprintf("limit: NewMeter needs limiters that have leases, and got a %T: %v", l, err))
		}
	}
	if lease == 0 {
		panic("limit: NewMeter needs a lease of at least a millisecond")
	}
	return &Meter{lease: lease, limiters: slices.Clone(limiters), batcher: batcherOf(limiters)}
}

// Reserve takes an estimate from all limiters, or from none. There is one key for all limiters, or one
// for each in their order. The Decision is the one that [ConsumeAll] returns, with the name of the
// policy that is exhausted. If it is allowed, its Receipt is for Settle: it is a value, which another
// process with the same limiters can settle. An estimate above the limit of a limiter is never allowed;
// with one of 0, everything is charged by Settle.
func (m *Meter) Reserve(ctx context.Context, estimate int64, keys ...Key) (Decision, error) {
	requests, err := m.requests(estimate, keys)
	if err != nil {
		return Decision{}, err
	}
	if err := checkRequests(requests); err != nil {
		return Decision{}, err
	}
	return takeJointly(ctx, m.batcher, requests, Take{Lease: m.lease, Receipt: true})
}

// Settle replaces an estimate by what was really used, for the keys of Reserve. It takes at most five
// seconds, and continues if ctx is canceled: the work has been done. After an error it can be
// repeated; until the end of the lease, nothing is charged twice, except if the key had 1,000
// settlements meanwhile.
func (m *Meter) Settle(ctx context.Context, receipt Receipt, used int64, keys ...Key) error {
	if used < 0 {
		return fmt.Errorf("limit: %d is used; it must not be negative", used)
	}
	requests, err := m.requests(0, keys)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return settleAll(ctx, receipt, used, requests)
}

// Describe returns the limits of all limiters.
func (m *Meter) Describe() (all []Description) {
	for _, l := range m.limiters {
		if d, ok := l.(describer); ok {
			all = append(all, d.Describe()...)
		}
	}
	return all
}

// Limiters returns the limiters in the order of their keys.
func (m *Meter) Limiters() []Limiter { return slices.Clone(m.limiters) }

func (m *Meter) requests(cost int64, keys []Key) ([]Request, error) {
	if len(keys) != 1 && len(keys) != len(m.limiters) {
		return nil, fmt.Errorf("limit: a meter with %d limiters got %d keys; it needs one for all or one for each", len(m.limiters), len(keys))
	}
	requests := make([]Request, len(m.limiters))
	for i, l := range m.limiters {
		requests[i] = Request{l, keys[min(i, len(keys)-1)], cost}
	}
	return requests, nil
}
