package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run/observe"
)

// Bounds of what waits to be stored.
const (
	maxPending   = 64 << 10 // bytes; a producer that is faster waits
	maxBatch     = 64 << 10 // bytes of one entry
	longRun      = 1000     // batches after which items wait longer
	longRunFlush = 5        // halves of Config.Flush that they then wait
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
		if o.end != nil {
			return errReturned
		}
		if o.pending < maxPending {
			break
		}
		o.waitLocked(o.producing.Done())
	}
	c := &o.runs.config
	if len(o.items) >= c.MaxItems || o.bytes+int64(len(item)) > c.MaxBytes {
		err := &ExhaustedError{&errors.Error{
			Code: errors.ResourceExhausted, RetryAfter: errors.Never,
			Message: fmt.Sprintf("the run has its %d items or %d bytes", c.MaxItems, c.MaxBytes),
		}}
		o.cancel(err)
		return err
	}
	o.items = append(o.items, item)
	o.bytes += int64(len(item))
	o.pending += len(item)
	if o.pending == len(item) || o.pending >= c.FlushBytes {
		o.wakeWriter()
	}
	return nil
}

// Flush waits until everything that was emitted is stored.
func (o *Owned) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushing++
	defer func() { o.flushing-- }()
	o.wakeWriter()
	for n := len(o.items); o.stored < n; {
		if cause := context.Cause(o.producing); cause != nil {
			return cause
		}
		o.waitLocked(o.producing.Done())
	}
	return nil
}

// waitLocked waits for progress, without the lock.
func (o *Owned) waitLocked(done <-chan struct{}) {
	progress := o.progress
	o.mu.Unlock()
	select {
	case <-progress:
	case <-done:
	}
	o.mu.Lock()
}

// A writer appends to the log of a run, one entry at a time: a slow store makes entries larger, and the queue
// not longer.
type writer struct {
	o       *Owned
	epoch   string // in which the log was appended to; "" before the first time
	batches int
	last    time.Time // when the last entry was appended
}

// write appends what was emitted, and then the end.
func (o *Owned) write() {
	defer close(o.written)
	w := &writer{o: o, epoch: o.epoch}
	for {
		e, ok := w.next()
		if !ok {
			return
		}
		began := time.Now()
		err := w.append(e)
		w.last = began
		switch {
		case err == nil && e.End != nil:
			return
		case err == nil:
			w.stored(e)
		case isTemporary(err): // the node has shut down
			o.lose()
			return
		default: // the store has lost entries, or another node has appended to the log
			if err := w.resume(); err != nil {
				o.lose()
				return
			}
		}
	}
}

// next waits for the next entry. It returns false if another node owns the run.
func (w *writer) next() (*entry, bool) {
	for {
		e, wait, ok := w.tryNext()
		if e != nil || !ok {
			return e, ok
		}
		var due <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-w.o.wake:
		case <-due:
		}
	}
}

// tryNext returns the next entry, or how long it can wait for more items; 0 is for the next one.
func (w *writer) tryNext() (_ *entry, wait time.Duration, ok bool) {
	o := w.o
	if o.takeFailover() {
		if err := w.resume(); err != nil {
			o.lose()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &entry{Fence: o.rec.Fence, First: uint64(o.stored)} //nolint:gosec // an index
	switch {
	case o.lost:
		return nil, 0, false
	case o.stored < len(o.items):
		if wait = w.pause(); wait > 0 && o.end == nil && o.flushing == 0 && o.pending < o.runs.config.FlushBytes {
			return nil, wait, true
		}
	case o.end != nil:
		e.First, e.End = 0, o.end
		return e, 0, true
	default:
		return nil, 0, true
	}
	size := 0
	for _, item := range o.items[o.stored:] {
		if size += len(item); size > maxBatch && len(e.Items) > 0 {
			break
		}
		e.Items = append(e.Items, item)
	}
	return e, 0, true
}

// pause returns how long items wait for others.
func (w *writer) pause() time.Duration {
	flush := w.o.runs.config.Flush
	if w.batches > longRun {
		flush = flush * longRunFlush / 2
	}
	return flush - time.Since(w.last)
}

func (o *Owned) takeFailover() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	failover := o.failover
	o.failover = false
	return failover
}

// append appends an entry, whatever becomes of single attempts.
func (w *writer) append(e *entry) error {
	r := w.o.runs
	return retry(r.ctx, func(ctx context.Context) error {
		stored, err := r.append(ctx, &w.o.rec.Record, e, w.epoch)
		if err == nil && w.epoch == "" {
			w.epoch = stored.Position.Epoch
		}
		return err
	})
}

// stored counts the items of an entry as stored.
func (w *writer) stored(e *entry) {
	o := w.o
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for _, item := range e.Items {
		bytes += len(item)
	}
	o.stored += len(e.Items)
	o.pending -= bytes
	o.notifyLocked()
	w.batches++
	report := o.runs.config.Observe
	if w.batches == 1 {
		report(observe.Event{Kind: observe.FirstItem, Duration: time.Since(o.began)})
	}
	report(observe.Event{Kind: observe.Batch, Count: int64(len(e.Items)), Bytes: int64(bytes)})
}

// resume continues behind the items that the log has. It returns an error if another node has ended the run, or
// goes on with it.
func (w *writer) resume() error {
	o := w.o
	state, err := o.runs.stateOf(o.runs.ctx, o.topic, o.rec.ID, nil)
	if err != nil {
		return err
	}
	if state.end != nil || state.closed || state.fence > o.rec.Fence {
		return errTakenOver
	}
	w.epoch = state.epoch
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored = min(int(state.count), len(o.items)) //nolint:gosec // at most MaxItems
	o.pending = 0
	for _, item := range o.items[o.stored:] {
		o.pending += len(item)
	}
	o.notifyLocked()
	return nil
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
