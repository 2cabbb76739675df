package run

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run/observe"
)

// A Budget is what a run takes from Options.Budget, a meter over token buckets and quotas: Prompt and a first
// slice when it begins, another slice whenever its items have used what was taken, and in the end what it has
// really used. A run that gets no further slice ends as [Exhausted].
type Budget struct {
	Keys   []limit.Key // of the meter's limiters: one for all, or one for each
	Prompt int64       // tokens that the run uses before its first item
	Slice  int64       // tokens that are taken at once; at least 1
}

// A reservation is what a run has taken from its budget, and whose permit it has, as the record of the run
// has it: so that every node can settle it, and resume the run.
type reservation struct {
	User     limit.Key       `json:"user,omitzero"` // as StartOptions has it
	Keys     []limit.Key     `json:"keys"`
	Prompt   int64           `json:"prompt"`
	Slice    int64           `json:"slice"`
	Receipts []limit.Receipt `json:"receipts"`
	Tokens   []int64         `json:"tokens"` // of each receipt
}

// parseReservation returns the zero reservation for none.
func parseReservation(taken json.RawMessage) (r reservation, err error) {
	if taken != nil {
		err = jsonv2.Unmarshal(taken, &r)
	}
	return r, err
}

// split returns how much of what was used belongs to each receipt. The last one has the excess.
func (r *reservation) split(used int64) []int64 {
	parts := make([]int64, len(r.Tokens))
	for i, tokens := range r.Tokens {
		parts[i] = min(used, tokens)
		used -= parts[i]
	}
	parts[len(parts)-1] += used
	return parts
}

// A budget counts the tokens of one run. The producer's goroutines share it.
type budget[Item router.Message] struct {
	rs    *Runs[Item]
	owned *runs.Owned

	mu      sync.Mutex // held while another slice is taken
	taken   reservation
	granted int64
	used    int64
	settled bool // nothing more is taken
}

// newBudget returns the budget of a start, or nil without one.
func (rs *Runs[Item]) newBudget(b *Budget) (*budget[Item], error) {
	switch {
	case b == nil:
		return nil, nil //nolint:nilnil // no budget
	case rs.opts.Budget == nil:
		return nil, fmt.Errorf("run: StartOptions.Budget is set; it needs Options.Budget")
	case b.Prompt < 0 || b.Slice < 1:
		return nil, fmt.Errorf("run: Budget has a Prompt of %d and a Slice of %d; they must be at least 0 and 1", b.Prompt, b.Slice)
	}
	return &budget[Item]{rs: rs, taken: reservation{Keys: b.Keys, Prompt: b.Prompt, Slice: b.Slice}}, nil
}

// budgetOf returns the budget of a run that is resumed.
func (rs *Runs[Item]) budgetOf(taken reservation) *budget[Item] {
	if len(taken.Receipts) == 0 || rs.opts.Budget == nil {
		return nil
	}
	b := &budget[Item]{rs: rs, taken: taken}
	for _, tokens := range taken.Tokens {
		b.granted += tokens
	}
	return b
}

// begin sets the run, and counts the items that it has.
func (b *budget[Item]) begin(o *runs.Owned, items []Item) {
	b.owned, b.used = o, b.taken.Prompt
	for _, item := range items {
		b.used += b.rs.opts.Tokens(item)
	}
}

// reserve takes the prompt and the first slice, for the run of a user.
func (b *budget[Item]) reserve(ctx context.Context, user limit.Key) error {
	b.taken.User = user
	return b.take(ctx, b.taken.Prompt+b.taken.Slice)
}

// take takes tokens from all limiters, or from none.
func (b *budget[Item]) take(ctx context.Context, tokens int64) error {
	d, err := b.rs.opts.Budget.Reserve(ctx, tokens, b.taken.Keys...)
	switch {
	case err != nil:
		return &errors.Error{Code: errors.Unavailable, Message: "the budget is unknown", Err: err}
	case !d.Allowed:
		return exhausted(d)
	}
	b.taken.Receipts = append(b.taken.Receipts, d.Receipt)
	b.taken.Tokens = append(b.taken.Tokens, tokens)
	b.granted += tokens
	b.rs.opts.Observe(observe.Event{Kind: observe.TokensTaken, Count: tokens})
	return nil
}

// spend counts an item. It takes another slice if the tokens are used up.
func (b *budget[Item]) spend(ctx context.Context, item Item) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := b.rs.opts.Tokens(item)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if missing := b.used + tokens - b.granted; missing > 0 {
		if err := b.extendLocked(ctx, missing); err != nil {
			return err
		}
	}
	b.used += tokens
	return nil
}

// extendLocked takes another slice, or a part of it that has at least the missing tokens. The record has it
// before it is used, so that it is settled if this node dies.
func (b *budget[Item]) extendLocked(ctx context.Context, missing int64) error {
	if b.settled {
		return context.Cause(b.owned.Context())
	}
	slice := max(b.taken.Slice, missing)
	err := b.take(ctx, slice)
	for isExhausted(err) && slice > missing {
		slice = max(slice/2, missing)
		err = b.take(ctx, slice)
	}
	if err != nil {
		b.owned.End(err)
		return err
	}
	taken, err := jsonv2.Marshal(b.taken)
	if err != nil {
		return err
	}
	return b.owned.Reserve(ctx, taken)
}

// settle replaces what was taken by what was used.
func (b *budget[Item]) settle(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	return b.rs.settleTokens(ctx, &b.taken, b.used)
}

// giveBack returns what was taken for a run that has not begun.
func (b *budget[Item]) giveBack(ctx context.Context) {
	if b != nil {
		_ = b.rs.settleTokens(ctx, &b.taken, 0) // the leases end
	}
}

// settle replaces what a run of any node has taken by what its items have used: for a run whose node has died.
func (rs *Runs[Item]) settle(ctx context.Context, taken json.RawMessage, items []any) error {
	r, err := parseReservation(taken)
	if err != nil || len(r.Receipts) == 0 || rs.opts.Budget == nil {
		return err
	}
	used := r.Prompt
	for _, item := range items {
		if item, ok := item.(Item); ok {
			used += rs.opts.Tokens(item)
		}
	}
	return rs.settleTokens(ctx, &r, used)
}

// settleTokens can be repeated after an error: nothing is charged twice until the leases end.
func (rs *Runs[Item]) settleTokens(ctx context.Context, r *reservation, used int64) error {
	for i, part := range r.split(used) {
		if err := rs.opts.Budget.Settle(ctx, r.Receipts[i], part, r.Keys...); err != nil {
			return &errors.Error{Code: errors.Unavailable, Message: "the budget cannot be settled", Err: err}
		}
	}
	rs.opts.Observe(observe.Event{Kind: observe.TokensUsed, Count: used})
	return nil
}

// exhausted returns the error of a run that gets no more tokens. Clients learn which policy is exhausted, and when it
// returns.
func exhausted(d limit.Decision) error {
	e := &errors.Error{Code: errors.ResourceExhausted, Message: "the budget is exhausted", RetryAfter: d.RetryAfter}
	if d.Policy != "" {
		e.Details = map[string]any{"policy": d.Policy}
	}
	if d.RetryAfter == limit.Never {
		e.Code = errors.FailedPrecondition
	}
	return &runs.ExhaustedError{Public: e}
}

func isExhausted(err error) bool {
	_, ok := errors.AsType[*runs.ExhaustedError](err)
	return ok
}

// Granted returns how many tokens the run has taken from its budget so far, for the limit of a request to a
// provider; 0 without a budget.
func (out *Output[Item]) Granted() int64 {
	if out.budget == nil {
		return 0
	}
	out.budget.mu.Lock()
	defer out.budget.mu.Unlock()
	return out.budget.granted
}

// Used sets how many tokens the run has really used, as a provider reports in the end, with the prompt. Otherwise,
// these are Budget.Prompt and the tokens of all items.
func (out *Output[Item]) Used(tokens int64) {
	if out.budget == nil {
		return
	}
	out.budget.mu.Lock()
	defer out.budget.mu.Unlock()
	out.budget.used = tokens
}
