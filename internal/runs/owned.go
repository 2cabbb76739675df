package runs

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/run/observe"
)

// An Owned is a run whose producer runs on this node. Its exported methods are safe for concurrent use.
type Owned struct {
	runs  *Runs
	began time.Time
	lease *heldLease
	view  *view

	producing context.Context //nolint:containedctx // of the producer, which outlives the call of Start
	cancel    context.CancelCauseFunc
	announced sync.WaitGroup                  // Config.Changed has been called for the beginning
	settle    func(ctx context.Context) error // replaces the reservation

	storing chan struct{} // has a token while rec is changed and stored, once the producer has begun
	rec     versionedRecord

	mu      sync.Mutex
	changed sync.Cond // state has changed
	state   ownerState
	timer   *time.Timer // until fire, at fires
	fires   time.Time   // zero if it is not set
}

// newOwned begins to renew the lease of a run, whose producer has the values of ctx. The caller must call begin or abandon.
func (r *Runs) newOwned(ctx context.Context, l *heldLease) *Owned {
	o := &Owned{runs: r, began: time.Now(), lease: l, storing: make(chan struct{}, 1)}
	o.changed.L = &o.mu
	ctx, expire := context.WithDeadlineCause(context.WithoutCancel(ctx), o.began.Add(r.config.Duration), errExpired)
	ctx, cancel := context.WithCancelCause(ctx)
	o.producing, o.cancel = ctx, func(cause error) { cancel(cause); expire() }
	o.state = ownerState{config: &r.config, working: true, renewal: earlier(o.began.Add(r.config.Lease/3), l.until)}
	r.mu.Lock()
	r.owned[o] = struct{}{}
	r.mu.Unlock()
	r.pool.Retain()
	o.mu.Lock()
	o.timer, o.fires = time.AfterFunc(time.Until(o.state.renewal), o.fire), o.state.renewal
	o.mu.Unlock()
	o.view = r.acquire(l.topic, l.ID, false)
	o.view.own(o)
	return o
}

// abandon ends what newOwned began, for a run that does not begin.
func (o *Owned) abandon() {
	o.handle(func(time.Time) error { o.state.phase = left; return context.Canceled })
	o.dropLease()
	o.leave()
}

// leave ends the ownership on this node.
func (o *Owned) leave() {
	o.announced.Wait()
	o.view.own(nil)
	o.view.release(false)
	r := o.runs
	r.pool.Release()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owned, o)
	r.checkIdleLocked()
}

// begin runs the producer, on a goroutine of its own.
func (o *Owned) begin(produce Producer) {
	begun := o.rec.Record
	o.announced.Go(func() { o.runs.config.Changed(begun) }) // so that the producer does not wait for it
	o.handle(o.state.begin)
	context.AfterFunc(o.producing, func() { o.handle(o.state.cancel) })
	o.hear(o.view.control())
	go o.produce(produce)
}

// produce runs the producer. A panic becomes an error, and is logged.
func (o *Owned) produce(produce Producer) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover() // nil after runtime.Goexit
		o.returned(&errors.Error{Code: errors.Internal, Err: errors.New("the producer has not returned: " + failure.PanicText(p))})
		o.runs.config.Logger.Error("penstock: run: the producer panicked", "topic", o.lease.topic, "run", o.lease.ID,
			"panic", failure.PanicText(p), "stack", string(debug.Stack()))
	}()
	err := produce(o.producing)
	returned = true
	o.returned(err)
}

// handle handles an event, one of the methods of ownerState. It begins what is to be done, and sets the timer.
func (o *Owned) handle(event func(now time.Time) (cause error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	cause := event(now)
	o.proceedLocked(now)
	if cause == nil {
		return
	}
	o.cancel(cause)
	switch {
	case errors.Is(cause, errLeaseLost):
		o.runs.config.Observe(observe.Event{Kind: observe.LeaseLost})
	case errors.Is(cause, errTakenOver) && o.runs.ctx.Err() == nil: // otherwise this node has shut down
		o.runs.config.Observe(observe.Event{Kind: observe.Fenced})
	}
}

func (o *Owned) proceedLocked(now time.Time) {
	work, again := o.state.schedule(now)
	if work {
		o.runs.pool.Start(executor.Func(o.work))
	}
	switch {
	case again.IsZero():
		o.timer.Stop()
		o.fires = again
	case o.fires.IsZero() || again.Before(o.fires): // rather too early than set for each entry
		o.timer.Reset(again.Sub(now))
		o.fires = again
	}
	o.changed.Broadcast()
}

// fire does what its time has come for, on the goroutine of the timer.
func (o *Owned) fire() {
	renew := false
	o.handle(func(now time.Time) error {
		o.fires, renew = time.Time{}, o.state.renew(now)
		return nil
	})
	if renew {
		o.renew()
	}
}

// work does the tasks of the owner that are due, and returns.
func (o *Owned) work() {
	for {
		switch t, e, epoch := o.take(); t {
		case noTask:
			return
		case compareLog:
			o.compare()
		case appendEntry:
			o.append(e, epoch)
		case giveUp:
			o.giveUp()
		case finishRun:
			o.finish()
		case leaveRun:
			o.leave()
			o.runs.config.Observe(observe.Event{Kind: observe.Left})
			return
		}
	}
}

func (o *Owned) take() (t task, e *entry, epoch string) {
	o.handle(func(now time.Time) error {
		t, e = o.state.take(now)
		epoch = o.state.epoch
		return nil
	})
	return t, e, epoch
}

// hear handles what this node has read in the log: a request to stop, and the end.
func (o *Owned) hear(stop *stopRequest, end *End) {
	if stop != nil || end != nil {
		o.handle(func(now time.Time) error { return o.state.hear(now, stop, end) })
	}
}

// failedOver handles that the store may have lost something.
func (o *Owned) failedOver() { o.handle(o.state.failOver) }

// SetSettle sets what replaces the reservation at the end. It is called before the producer runs.
func (o *Owned) SetSettle(settle func(ctx context.Context) error) { o.settle = settle }

// Reserve stores another reservation in the record, before it is used. Calls must not be concurrent, and none may
// follow the call of what SetSettle has set.
func (o *Owned) Reserve(ctx context.Context, reservation json.RawMessage) error {
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	o.rec.Reservation = reservation
	return o.replaceOlder(ctx)
}

// Context returns that of the producer, whose cause says why it is canceled.
func (o *Owned) Context() context.Context { return o.producing }

// End cancels the producer with a cause.
func (o *Owned) End(cause error) { o.cancel(cause) }
