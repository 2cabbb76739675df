package runs

import (
	"context"
	"encoding/json"

	"github.com/penstock-go/penstock/run/observe"
)

// resume goes on with a run that this node has taken over. The log refuses what its former owner appends from
// the first entry of this node on, so what is read after it is complete.
func (r *Runs) resume(ctx context.Context, rec versionedRecord) error {
	if !r.admit() {
		return errClosed
	}
	defer r.leave()
	l := &heldLease{topic: rec.Topic, lease: lease{rec.ID, rec.Fence}, earlier: rec.Earlier}
	if err := r.storeLease(ctx, l); err != nil {
		return err
	}
	o := r.newOwned(ctx, l)
	o.rec = rec
	o.view.load(false) // there may be a request to stop
	var produce Producer
	items, err := o.recover(ctx)
	if err == nil {
		produce, err = r.config.Resume(o, rec.Record, items)
	}
	if err != nil {
		o.abandon()
		return err
	}
	r.config.Observe(observe.Event{Kind: observe.Resumed})
	o.begin(produce)
	return nil
}

// A recovered item is both what the log has and what the producer receives.
type recovered struct {
	raw     json.RawMessage
	decoded any
}

// recover makes the log refuse the former owner, and reads the items. Until begin, nothing else uses the items of the state.
func (o *Owned) recover(ctx context.Context) (items []any, err error) {
	r := o.runs
	if err := r.fenceOff(ctx, &o.rec.Record); err != nil {
		return nil, err
	}
	state, err := r.stateOf(ctx, o.lease.topic, o.lease.ID, func(raw json.RawMessage) (any, error) {
		item, err := r.config.Decode(raw)
		return recovered{raw, item}, err
	})
	for _, both := range state.items {
		item := both.(recovered)
		o.state.emit(item.raw)
		items = append(items, item.decoded)
	}
	_ = o.state.compared(state.count, state.epoch) // nothing was refused
	return items, err
}
