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
	l := &heldLease{lease: lease{ID: rec.ID, Fence: rec.Fence}}
	if err := r.storeLease(ctx, rec.Topic, l); err != nil {
		return err
	}
	o := r.newOwned(rec.Topic, l)
	o.rec = rec
	o.view.load(false) // there may be a request to stop
	var produce Producer
	items, err := o.recover(ctx)
	if err == nil {
		produce, err = r.config.Resume(o, rec.Record, items)
	}
	if err != nil {
		o.abandon(context.WithoutCancel(ctx))
		return err
	}
	r.config.Observe(observe.Event{Kind: observe.Resumed})
	go o.run(context.WithoutCancel(ctx), produce)
	return nil
}

// recover makes the log refuse the former owner, and reads the items.
func (o *Owned) recover(ctx context.Context) (items []any, err error) {
	r := o.runs
	if err := r.fenceOff(ctx, &o.rec.Record); err != nil {
		return nil, err
	}
	keep := func(raw json.RawMessage) (any, error) {
		item, err := r.config.Decode(raw)
		if err == nil {
			o.items = append(o.items, raw)
			o.bytes += int64(len(raw))
		}
		return item, err
	}
	state, err := r.stateOf(ctx, o.topic, o.rec.ID, keep)
	o.stored, o.epoch = len(o.items), state.epoch
	return state.items, err
}
