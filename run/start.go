package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// StartOptions are what a run begins with. The zero value is a working configuration.
type StartOptions struct {
	// RequestID makes a repeated Start harmless: it returns the run that another Start of the topic with the
	// same ID has begun, while Options.Retain has not passed since its end. "" is none.
	RequestID string

	// User is the key for Options.PerUser. It must be set if that is.
	User limit.Key

	// Budget is what the run takes from Options.Budget; nothing if nil.
	Budget *Budget
}

// Start begins a run of a topic, on this node: produce runs on a goroutine of its own until it returns.
// Its context has the values of ctx, but does not end with it. It is canceled when the run is stopped,
// exceeds a limit or a budget, when its node is cut off from the store or shuts down; then produce should
// return soon, and whatever it returns, the cause decides how the run ends.
//
// If another run of the topic is active, Start returns that and an ABORTED error. With a RequestID that
// a run of the topic has, it returns that run, and Info.Repeated is set. If the budget or Options.PerUser is
// exhausted, the error is RESOURCE_EXHAUSTED, and there is no run.
func (rs *Runs[Item]) Start(ctx context.Context, topic string, opts *StartOptions, produce func(ctx context.Context, out *Output[Item]) error) (Info, error) {
	if err := rs.check(topic); err != nil {
		return Info{}, err
	}
	if produce == nil {
		panic("run: Start needs a producer, and got nil")
	}
	if opts == nil {
		opts = new(StartOptions)
	}
	b, err := rs.newBudget(opts.Budget)
	if err != nil {
		return Info{}, err
	}
	permit := &userPermit{semaphore: rs.opts.PerUser, user: opts.User}
	claim := &runs.Claim{Topic: topic, RequestID: opts.RequestID, Produce: func(o *runs.Owned, rec runs.Record) runs.Producer {
		out := rs.newOutput(o, &rec, b, nil)
		return func(ctx context.Context) error {
			defer permit.release()
			return produce(ctx, out)
		}
	}}
	if permit.semaphore != nil || b != nil {
		claim.Reserve = func(ctx context.Context) (json.RawMessage, error) { return reserve(ctx, permit, b) }
		claim.Return = func(ctx context.Context, _ json.RawMessage) { b.giveBack(ctx) }
	}
	rec, begun, err := rs.runs.Start(ctx, claim)
	if !begun { // Return is not called if the store is away
		permit.release()
	}
	info := infoOf(&rec)
	info.Repeated = err == nil && !begun
	return info, err
}

// newOutput returns the output of a run that has items already.
func (rs *Runs[Item]) newOutput(o *runs.Owned, rec *runs.Record, b *budget[Item], items []Item) *Output[Item] {
	if b != nil {
		b.begin(o, items)
		o.SetSettle(b.settle)
	}
	return &Output[Item]{owned: o, budget: b, info: infoOf(rec)}
}

// resume goes on with a run of another node.
func (rs *Runs[Item]) resume(o *runs.Owned, rec runs.Record, items []any) (runs.Producer, error) {
	typed := make([]Item, len(items))
	for i, item := range items {
		typed[i], _ = item.(Item)
	}
	r, err := parseReservation(rec.Reservation)
	if err != nil {
		return nil, err
	}
	out := rs.newOutput(o, &rec, rs.budgetOf(r), typed)
	permit := &userPermit{semaphore: rs.opts.PerUser, user: r.User}
	return func(ctx context.Context) error {
		defer permit.acquireLater(ctx)()
		return rs.opts.Resume(ctx, out, typed)
	}, nil
}

// An Output receives what a producer emits. Its methods are safe for concurrent use, except Reserve and
// Used.
type Output[Item router.Message] struct {
	owned  *runs.Owned
	budget *budget[Item] // nil without one
	info   Info
}

// Run describes the run, as of its start.
func (out *Output[Item]) Run() Info { return out.info }

// Emit adds an item to the run. It waits while the store is slower than the producer, and while the budget is
// extended, but never for readers. An error is the reason why the run ends: the producer should
// return it. When the producer has returned, Emit fails with FAILED_PRECONDITION.
func (out *Output[Item]) Emit(item Item) error {
	raw, err := jsonv2.Marshal(item)
	if err != nil {
		return fmt.Errorf("run: the item cannot be encoded: %w", err)
	}
	if out.budget != nil {
		if err := out.budget.spend(out.owned.Context(), item); err != nil {
			return err
		}
	}
	return out.owned.Emit(raw)
}

// Flush waits until everything that was emitted is stored, such as before a tool is called.
func (out *Output[Item]) Flush() error { return out.owned.Flush() }
