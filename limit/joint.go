package limit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit/mode"
)

// A Request is a cost that a limiter charges to a key.
type Request struct {
	Limiter Limiter
	Key     Key
	Cost    int64 // in tokens, not negative
}

// ConsumeAll takes the cost of every request, or of none: for example, from a limit per user
// and a limit per room. The Decision is the one that [AllOf] would return.
//
// Requests to token buckets in memory, and requests to limiters of any kind on one Redis server or
// in one Durable Object, are decided in one atomic step. On a Redis Cluster, where the keys may be
// on different nodes, and with other limiters, they are decided in the given order. If one of them
// denies, those after it only look, and what those before it took is undone; until then, other
// calls see those tokens missing, and they stay missing if the process dies in between. So that a
// flood of denied calls does not empty the limiters before the one that denies it, calls of a
// process wait while it has taken half of what a bucket can hold, and not been answered. Neither
// case grants more than any limit allows.
//
// A flood of denied calls hardly reaches a store. If a limiter on a store remembers that it denies, or a
// limiter in this process denies beside limiters on a store, no store is asked, and the RetryAfter is the
// longest of these denials: after it, another limiter may deny for longer.
//
// An error means that nothing was decided; it is unknown whether tokens were taken. It is an
// error if there is no request, or if two requests have the same limiter and key.
func ConsumeAll(ctx context.Context, requests ...Request) (Decision, error) {
	return takeRequests(ctx, requests, Take{})
}

// All is [ConsumeAll] with the MaxWait, the Receipt and the Lease of the Take, whose Mode is Whole or
// Looking. It has no Cost and no Keep of its own. The receipt in the Decision is for
// [Receipt.UndoAll].
func (t Take) All(ctx context.Context, requests ...Request) (Decision, error) {
	if t.Cost != 0 || t.Keep != 0 || t.Mode > mode.Looking {
		return Decision{}, fmt.Errorf("limit: Take.All has costs in its requests, and needs the mode Whole or Looking and no Keep")
	}
	if err := t.Validate(); err != nil {
		return Decision{}, fmt.Errorf("limit: %w", err)
	}
	return takeRequests(ctx, requests, t)
}

// UndoAll returns what [Take.All] took for the same requests, as Undo does for each of them. It
// returns the first error.
func (r Receipt) UndoAll(ctx context.Context, requests ...Request) error {
	return r.each(requests, func(request Request, own Receipt) error { return own.Undo(ctx, request.Limiter, request.Key) })
}

// settleAll is UndoAll for Settle.
func settleAll(ctx context.Context, receipt Receipt, used int64, requests []Request) error {
	return receipt.each(requests, func(r Request, own Receipt) error { return own.Settle(ctx, r.Limiter, r.Key, used) })
}

// each calls f with each request and its own receipt, and returns the first error.
func (r Receipt) each(requests []Request, f func(Request, Receipt) error) (err error) {
	part := r.Parts
	for _, request := range requests {
		var own Receipt
		if part != nil {
			own = *part
			own.Next, part = nil, part.Next
		}
		if e := f(request, own); err == nil {
			err = e
		}
	}
	return err
}

func takeRequests(ctx context.Context, requests []Request, take Take) (Decision, error) {
	if err := checkRequests(requests); err != nil {
		return Decision{}, err
	}
	limiters := make([]Limiter, len(requests))
	for i, r := range requests {
		limiters[i] = r.Limiter
	}
	return takeJointly(ctx, batcherOf(limiters), requests, take)
}

func checkRequests(requests []Request) error {
	if len(requests) == 0 {
		return fmt.Errorf("limit: ConsumeAll needs a request")
	}
	for i, r := range requests {
		if r.Cost < 0 {
			return fmt.Errorf("limit: cost is %d; it must not be negative", r.Cost)
		}
		for _, other := range requests[:i] {
			if other.Limiter == r.Limiter && other.Key == r.Key {
				return fmt.Errorf("limit: two requests have the same limiter and the key %q; add their costs", r.Key)
			}
		}
	}
	return nil
}

// batcherOf returns a limiter that can decide for all, or nil.
func batcherOf(limiters []Limiter) batcher {
	first, ok := limiters[0].(batcher)
	if !ok {
		return nil
	}
	for _, l := range limiters[1:] {
		if !first.BatchesWith(l) {
			return nil
		}
	}
	return first
}

// takeJointly takes the cost of every request or of none, as take says, whose Mode is Whole or
// Looking. The batcher decides for all, unless it is nil, cannot, or a denial is remembered.
func takeJointly(ctx context.Context, batcher batcher, requests []Request, take Take) (Decision, error) {
	var decisions []Decision
	var err error
	if batcher != nil && take.Mode == mode.Whole {
		if decisions = rememberedDenials(requests, take.MaxWait); decisions == nil {
			decisions, err = batcher.TakeBatch(ctx, requests, take)
		}
	}
	if decisions == nil && err == nil {
		decisions, err = takeInOrder(ctx, requests, take)
	}
	if err != nil {
		return Decision{}, err
	}
	d := mostRestrictive(requests, decisions)
	if d.Receipt = (Receipt{}); take.Receipt && d.Allowed {
		d.Receipt.Parts = chain(decisions)
	}
	return d, nil
}

// chain returns the receipts of all decisions, each with the next one; nil if nothing was taken.
func chain(decisions []Decision) (first *Receipt) {
	for _, d := range slices.Backward(decisions) {
		receipt := d.Receipt
		if first == nil && receipt == (Receipt{}) {
			continue
		}
		receipt.Next = first
		first = &receipt
	}
	return first
}

// takeInOrder calls the limiters of the requests one after the other, unless a denial is known already.
// After a denial it only looks, and undoes what was taken before. Calls with the same limiter and key
// wait while others have taken half of what its bucket can hold and are not decided.
func takeInOrder(ctx context.Context, requests []Request, take Take) ([]Decision, error) {
	decisions, isLocal := earlyDenials(ctx, requests, take)
	if decisions != nil {
		return decisions, nil
	}
	if take.Mode == mode.Whole && len(requests) > 1 && !isLocal {
		leave, waited, err := enterGates(ctx, gatesOf(requests))
		if err != nil {
			return nil, err
		}
		defer leave()
		if waited {
			decisions, _ = earlyDenials(ctx, requests, take)
		}
		if decisions != nil {
			return decisions, nil
		}
	}
	return takeEach(ctx, requests, take)
}

// earlyDenials returns the decisions about requests of which one is denied without asking a store, nil if
// none is, and whether no request needs a store.
func earlyDenials(ctx context.Context, requests []Request, take Take) (decisions []Decision, isLocal bool) {
	isLocal = !slices.ContainsFunc(requests, func(r Request) bool {
		_, ok := r.Limiter.(inProcess)
		return !ok
	})
	if decisions = rememberedDenials(requests, take.MaxWait); decisions == nil && !isLocal {
		decisions = localDenials(ctx, requests, take.MaxWait)
	}
	return decisions, isLocal
}

func takeEach(ctx context.Context, requests []Request, take Take) ([]Decision, error) {
	decisions, denied := make([]Decision, 0, len(requests)), false
	for i, r := range requests {
		one := Take{Cost: r.Cost, MaxWait: take.MaxWait, Lease: take.Lease, Mode: take.Mode}
		// What the last one took is undone by the caller only.
		one.Receipt = take.Mode == mode.Whole && (take.Receipt || take.Lease > 0 || i < len(requests)-1)
		if denied {
			one.Mode, one.Receipt, one.Lease = mode.Looking, false, 0
		}
		d, err := r.Limiter.Take(ctx, r.Key, one)
		if err != nil {
			undoEach(ctx, requests, decisions)
			return nil, err
		}
		decisions, denied = append(decisions, d), denied || !d.Allowed
	}
	if denied {
		undoEach(ctx, requests, decisions)
	}
	return decisions, nil
}

// rememberedDenials returns nil unless a limiter remembers that it denies its request. The
// decisions about the others are then allowed, with no number but Limit. It returns nil if a cost is above
// the limit of another: that is never allowed, which is the most restrictive denial.
func rememberedDenials(requests []Request, maxWait time.Duration) []Decision {
	return knownDenials(requests, func(r Request) (Decision, bool) {
		rememberer, ok := r.Limiter.(rememberer)
		if !ok {
			return Decision{}, false
		}
		return rememberer.RemembersDenial(r.Key, Take{Cost: r.Cost, MaxWait: maxWait})
	})
}

// localDenials is rememberedDenials for limiters in this process, which are asked before others are: a flood
// that they deny reaches no store.
func localDenials(ctx context.Context, requests []Request, maxWait time.Duration) []Decision {
	return knownDenials(requests, func(r Request) (Decision, bool) {
		if _, ok := r.Limiter.(inProcess); !ok {
			return Decision{}, false
		}
		d, err := r.Limiter.Take(ctx, r.Key, Take{Cost: r.Cost, MaxWait: maxWait, Mode: mode.Looking})
		return d, err == nil && !d.Allowed && d.Reason != BurstExceeded // a look starts no penalty
	})
}

// knownDenials returns nil unless known returns a denial of a request.
func knownDenials(requests []Request, known func(Request) (Decision, bool)) (decisions []Decision) {
	for i, r := range requests {
		d, ok := known(r)
		if !ok {
			continue
		}
		if decisions == nil {
			decisions = make([]Decision, len(requests))
			for i := range decisions {
				decisions[i].Allowed = true
			}
		}
		decisions[i] = d
	}
	for i := range decisions {
		describer, ok := requests[i].Limiter.(describer)
		if !ok || !decisions[i].Allowed {
			continue
		}
		for _, d := range describer.Describe() {
			if requests[i].Cost > d.Limit {
				return nil
			}
			decisions[i].Limit = d.Limit
		}
	}
	return decisions
}

// undoTimeout bounds how long a denied call waits until what it took is returned. What is not returned
// costs others tokens; the wait costs only the caller that is denied.
const undoTimeout = time.Second

// undoEach returns what the decisions took, even if the caller's context is done. Tokens that a
// store fails to take back return with time.
func undoEach(ctx context.Context, requests []Request, decisions []Decision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for i, d := range decisions {
		_ = d.Receipt.Undo(ctx, requests[i].Limiter, requests[i].Key)
	}
}

// mostRestrictive returns the Decision that represents all of them, with the name of its policy:
// the denial with the longest RetryAfter; without a denial the admission with the longest wait,
// and among those the one with the fewest tokens left.
func mostRestrictive(requests []Request, decisions []Decision) Decision {
	most := 0
	for i, d := range decisions[1:] {
		if moreRestrictive(&d, &decisions[most]) {
			most = i + 1
		}
	}
	d := decisions[most]
	if l, ok := requests[most].Limiter.(describer); ok && d.Policy == "" {
		if descriptions := l.Describe(); len(descriptions) > 0 {
			d.Policy = descriptions[0].Name
		}
	}
	return d
}

// moreRestrictive reports whether a is more restrictive than b.
func moreRestrictive(a, b *Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	default:
		return a.Allowed && a.Remaining < b.Remaining
	}
}
