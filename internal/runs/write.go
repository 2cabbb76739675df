package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run/observe"
)

// Emit adds an item. It waits while the store is slower than the producer, and never for readers. After the
// producer was canceled, it returns the cause, and after it has returned, an error.
func (o *Owned) Emit(item json.RawMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if cause := context.Cause(o.producing); cause != nil {
			return cause
		}
		if o.state.end != nil {
			return errReturned
		}
		if o.state.pending < maxPending {
			break
		}
		o.changed.Wait()
	}
	if c := &o.runs.config; len(o.state.items) >= c.MaxItems || o.state.bytes+int64(len(item)) > c.MaxBytes {
		err := &ExhaustedError{&errors.Error{
			Code: errors.ResourceExhausted, RetryAfter: errors.Never,
			Message: fmt.Sprintf("the run has its %d items or %d bytes", c.MaxItems, c.MaxBytes),
		}}
		o.cancel(err)
		return err
	}
	if o.state.emit(item) {
		o.proceedLocked(time.Now())
	}
	return nil
}

// Flush waits until everything that was emitted is stored.
func (o *Owned) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.state.items)
	o.state.flushed = n
	o.proceedLocked(time.Now())
	for o.state.stored < n || o.state.lost { // then the producer is canceled
		if cause := context.Cause(o.producing); cause != nil {
			return cause
		}
		o.changed.Wait()
	}
	return nil
}

// append appends an entry to the log. A slow store makes entries larger, and the queue not longer.
func (o *Owned) append(e *entry, epoch string) {
	e.Fence = o.lease.Fence
	size := 0
	for _, item := range e.Items {
		size += len(item)
	}
	r := o.runs
	stored, err := r.append(r.ctx, &o.rec.Record, e, epoch)
	batches := 0
	o.handle(func(now time.Time) error {
		switch {
		case err == nil:
			o.state.appended(e, size, stored.Position.Epoch)
			batches = o.state.batches
		case isTemporary(err): // the node has shut down
			return o.state.lose(now)
		default: // the store has lost entries, or another node has appended to the log, or no attempt helps
			o.state.behind, o.state.refusal = true, err
		}
		return nil
	})
	if err != nil || e.End != nil {
		return
	}
	if batches == 1 {
		r.config.Observe(observe.Event{Kind: observe.FirstItem, Duration: time.Since(o.began)})
	}
	r.config.Observe(observe.Event{Kind: observe.Batch, Count: int64(len(e.Items)), Bytes: int64(size)})
}

// compare reads which items the log has. Another node may have ended the run, or go on with it.
func (o *Owned) compare() {
	state, err := o.runs.stateOf(o.runs.ctx, o.lease.topic, o.lease.ID, nil)
	var refusal error
	o.handle(func(now time.Time) error {
		if err != nil || state.end != nil || state.closed || state.fence > o.lease.Fence {
			return o.state.lose(now)
		}
		refusal = o.state.compared(state.count, state.epoch)
		return refusal
	})
	if refusal != nil {
		o.runs.log("the store refuses what the run emits, so the run ends", &o.rec.Record, refusal)
	}
}

// idempotencyKey returns the key of an entry, with which an attempt with an unknown outcome is repeated. After
// a failover, entries begin at other items.
func idempotencyKey(e *entry, epoch string) string {
	switch {
	case e.End != nil:
		return fmt.Sprintf("end/%d/%s", e.Fence, epoch)
	case e.Resume != "":
		return fmt.Sprintf("resume/%d", e.Fence)
	case e.Stop != nil:
		return ""
	default:
		return fmt.Sprintf("%d/%d/%s", e.Fence, e.First, epoch)
	}
}
