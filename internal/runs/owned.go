package runs

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/run/observe"
)

// An Owned is a run whose producer runs on this node. Its exported methods are safe for concurrent use.
type Owned struct {
	runs  *Runs
	topic string
	began time.Time
	lease *heldLease
	rec   versionedRecord
	view  *view
	epoch string // in which the log of a run was read that goes on here; "" for a new one

	producing  context.Context //nolint:containedctx // of the producer, which outlives the call of Start
	cancel     context.CancelCauseFunc
	renew      chan struct{} // a token renews the lease at once
	outdated   atomic.Bool   // the store may have lost the record
	restored   chan struct{} // a token stores the record again, once the lease is: without that, other nodes end the run
	ended      chan struct{} // the run has ended, or belongs to another node
	leaseEnded chan struct{}
	wake       chan struct{} // a token wakes the writer
	written    chan struct{} // the writer has returned

	storing chan struct{} // has a token while rec is changed and stored, from the beginning of run on

	mu       sync.Mutex
	items    []json.RawMessage // all of the run, for the case that the store loses some
	bytes    int64             // of items
	stored   int               // items that the log has
	pending  int               // bytes of items that the log does not have
	flushing int               // callers of Flush
	end      *End              // the writer appends it after the items
	failover bool              // the store may have lost items
	lost     bool              // another node has ended the run, or goes on with it
	progress chan struct{}     // closed when stored or lost changes

	settle func(ctx context.Context) error // replaces the reservation
}

// newOwned begins to renew the lease of a run. The caller must call run or abandon.
func (r *Runs) newOwned(topic string, l *heldLease) *Owned {
	o := &Owned{
		runs: r, topic: topic, began: time.Now(), lease: l,
		renew: make(chan struct{}, 1), restored: make(chan struct{}, 1), storing: make(chan struct{}, 1),
		ended: make(chan struct{}), leaseEnded: make(chan struct{}),
		wake: make(chan struct{}, 1), written: make(chan struct{}), progress: make(chan struct{}),
	}
	ctx, expire := context.WithDeadlineCause(context.Background(), o.began.Add(r.config.Duration), errExpired)
	ctx, cancel := context.WithCancelCause(ctx)
	o.producing, o.cancel = ctx, func(cause error) { cancel(cause); expire() }
	r.mu.Lock()
	r.owned[o] = struct{}{}
	r.mu.Unlock()
	o.view = r.acquire(topic, l.ID, false)
	o.view.own(o)
	go o.keepLease()
	return o
}

// abandon ends what newOwned began, for a run that does not begin.
func (o *Owned) abandon(ctx context.Context) {
	o.cancel(nil)
	close(o.ended)
	<-o.leaseEnded
	o.dropLease(ctx)
	o.leave()
}

// leave ends the ownership on this node.
func (o *Owned) leave() {
	o.view.own(nil)
	o.view.release(false)
	r := o.runs
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owned, o)
	r.checkIdleLocked()
}

// run runs the producer and ends the run. values has the values of the context of Start.
func (o *Owned) run(values context.Context, produce Producer) {
	defer o.runs.config.Observe(observe.Event{Kind: observe.Left})
	defer o.leave()
	put(o.renew) // a failover may have lost the lease before the record was stored
	go o.write()
	go o.listen()
	announced := make(chan struct{})
	go func(begun Record) { // so that the producer does not wait for it
		defer close(announced)
		o.runs.config.Changed(begun)
	}(o.rec.Record)
	end := o.endOf(o.await(producerContext{o.producing, values}, produce))
	o.mu.Lock()
	end.Items = uint64(len(o.items))
	o.end = &end // from now on, Emit refuses items
	o.mu.Unlock()
	o.wakeWriter()
	<-o.written
	<-announced
	o.finish(context.WithoutCancel(values), &end)
	o.cancel(errReturned)
	o.awaitView()
}

// awaitView waits until the readers on this node can have the end, so that a shutdown does not end their reading
// before it.
func (o *Owned) awaitView() {
	timer := time.NewTimer(canceledWait)
	defer timer.Stop()
	for !o.isLost() {
		_, ended, changed := o.view.control()
		if ended != nil {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// canceledWait is how long a run waits for a producer that was canceled. A producer that returns later can emit
// nothing more, so its readers need not wait for it.
const canceledWait = time.Second

// await runs the producer on a goroutine of its own, and returns its error.
func (o *Owned) await(ctx context.Context, produce Producer) error {
	returned := make(chan error, 1)
	go func() { o.produce(ctx, produce, returned) }()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(canceledWait)
	defer timer.Stop()
	select {
	case err := <-returned:
		return err
	case <-timer.C:
		o.runs.log("the producer has not returned after it was canceled; the run ends without it", &o.rec.Record, context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// A producerContext has the values of one context, and the end of another.
type producerContext struct {
	context.Context //nolint:containedctx // a context itself

	values context.Context //nolint:containedctx // likewise
}

// Value returns the value of a key.
func (c producerContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// produce runs the producer, and sends its error. A panic becomes an error, and is logged.
func (o *Owned) produce(ctx context.Context, produce Producer, result chan<- error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover() // nil after runtime.Goexit
		result <- &errors.Error{Code: errors.Internal, Err: errors.New("the producer has not returned: " + failure.PanicText(p))}
		o.runs.config.Logger.Error("penstock: run: the producer panicked", "topic", o.topic, "run", o.rec.ID,
			"panic", failure.PanicText(p), "stack", string(debug.Stack()))
	}()
	err := produce(ctx)
	returned = true
	result <- err
}

// finish stores the end of the run. If another node has ended it, nothing is left to do.
func (o *Owned) finish(ctx context.Context, end *End) {
	defer func() {
		close(o.ended)
		<-o.leaseEnded
		if !o.isLost() {
			o.dropLease(ctx)
		}
	}()
	if o.isLost() {
		return
	}
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	r := o.runs
	err := retry(r.ctx, func(ctx context.Context) error { return o.settleOnce(ctx) })
	if err != nil {
		r.log("the budget of a run is not settled; a node that is asked about the run does it", &o.rec.Record, err)
		return
	}
	o.rec.State, o.rec.End, o.rec.Settled = o.rec.State.to(end.State), end, true
	if err := r.replaceOlder(r.ctx, &o.rec); err != nil && errors.CodeOf(err) != errors.Aborted {
		r.log("the end of a run is not stored; a node that is asked about the run does it", &o.rec.Record, err)
		return
	}
	r.config.Changed(o.rec.Record)
	r.config.Observe(observe.Event{Kind: observe.Ended, State: string(end.State), Duration: time.Since(o.began)})
}

// settleOnce replaces the reservation, if there is one.
func (o *Owned) settleOnce(ctx context.Context) error {
	if o.settle == nil {
		return nil
	}
	return o.settle(ctx)
}

// SetSettle sets what replaces the reservation at the end. It is called before the producer runs.
func (o *Owned) SetSettle(settle func(ctx context.Context) error) { o.settle = settle }

// Reserve stores another reservation in the record, before it is used. Calls must not be concurrent, and none may
// follow the call of what SetSettle has set.
func (o *Owned) Reserve(ctx context.Context, reservation json.RawMessage) error {
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	o.rec.Reservation = reservation
	return o.runs.replaceOlder(ctx, &o.rec)
}

// Context returns that of the producer, whose cause says why it is canceled.
func (o *Owned) Context() context.Context { return o.producing }

// End cancels the producer with a cause.
func (o *Owned) End(cause error) { o.cancel(cause) }

// lose ends what this node does for the run, which another node has ended, or goes on with.
func (o *Owned) lose() {
	o.cancel(errTakenOver)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.lost {
		o.lost = true
		if o.runs.ctx.Err() == nil { // otherwise this node has shut down
			o.runs.config.Observe(observe.Event{Kind: observe.Fenced})
		}
		o.notifyLocked()
		o.wakeWriter()
	}
}

func (o *Owned) isLost() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

func (o *Owned) notifyLocked() {
	close(o.progress)
	o.progress = make(chan struct{})
}

func (o *Owned) wakeWriter() { put(o.wake) }

// put puts a token into a channel with room for one.
func put(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen cancels the producer when someone asks for it, or when another node has ended the run.
func (o *Owned) listen() {
	for {
		stop, end, changed := o.view.control()
		switch {
		case end != nil:
			if !o.isEnding() {
				o.lose()
			}
			return
		case stop != nil:
			o.cancel(&stopCause{stop.By})
		}
		select {
		case <-changed:
		case <-o.restored:
			o.restore()
		case <-o.ended:
			return
		}
	}
}

// restore stores the record again, of which a failover may have brought back an older version, or none.
func (o *Owned) restore() {
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	if o.rec.State.Ended() || o.isLost() {
		return
	}
	if err := o.runs.replaceOlder(o.runs.ctx, &o.rec); err != nil && errors.CodeOf(err) != errors.Aborted {
		o.runs.log("the record of a run is not stored again after a failover", &o.rec.Record, err)
	}
}

// isEnding reports whether the end may be that of this node.
func (o *Owned) isEnding() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end != nil
}

// failedOver makes the writer compare the log with the items, and the lease and the record be stored again.
func (o *Owned) failedOver() {
	o.mu.Lock()
	o.failover = true
	o.mu.Unlock()
	o.wakeWriter()
	o.outdated.Store(true)
	put(o.renew)
}
