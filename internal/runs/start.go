package runs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/run/observe"
)

// A Claim is what a run begins with.
type Claim struct {
	Topic     string
	RequestID string // "" is none

	// Reserve takes from the budget, or returns an error; nil without a budget. Return gives back what was not
	// used.
	Reserve func(ctx context.Context) (reservation json.RawMessage, err error)
	Return  func(ctx context.Context, reservation json.RawMessage)

	// Produce returns the producer of a run, which runs on a goroutine of its own.
	Produce func(o *Owned, rec Record) Producer
}

// A Producer emits the items of a run until it returns.
type Producer func(ctx context.Context) error

// Start begins a run, or returns the one that has the same request ID. If another run of the topic is
// active, it returns that with an ABORTED error.
func (r *Runs) Start(ctx context.Context, c *Claim) (rec Record, begun bool, err error) {
	if !r.admit() {
		return rec, false, errClosed
	}
	defer r.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(errClosed) })()
	var o *Owned
	for o == nil {
		before, l, err := r.claimLease(ctx, c)
		if err != nil || l == nil {
			return before.Record, false, err
		}
		o = r.newOwned(ctx, l)
		o.view.load(false) // a request to stop may be earlier than the subscription
		if err := o.claim(ctx, c, before); err != nil {
			o.abandon()
			if errors.CodeOf(err) == errors.Aborted { // another run has begun and ended meanwhile
				o = nil
				continue
			}
			r.config.Observe(observe.Event{Kind: observe.Refused})
			return rec, false, err
		}
	}
	r.config.Observe(observe.Event{Kind: observe.Started})
	rec = o.rec.Record
	o.begin(c.Produce(o, rec))
	return rec, true, nil
}

// claimLease takes the lease of a topic without an active run: what nodes that start at the same time
// compete for. Without an error and a lease, the run is one that exists.
func (r *Runs) claimLease(ctx context.Context, c *Claim) (before versionedRecord, _ *heldLease, err error) {
	deadline := time.Now().Add(r.config.Lease)
	for {
		before, err = r.loadLive(ctx, c.Topic)
		if err != nil {
			return before, nil, err
		}
		var l *heldLease
		if found := before.find("", c.RequestID); c.RequestID != "" && found != nil {
			ending, _ := r.isEnding(ctx, found) // after an error, it is returned as the record has it
			if found.End != nil || !ending || time.Now().After(deadline) {
				r.config.Observe(observe.Event{Kind: observe.Repeated})
				return versionedRecord{Record: *found}, nil, nil
			}
		} else if l, err = r.tryClaim(ctx, &before.Record, c.Topic); l != nil {
			return before, l, nil
		} else if !errors.Is(err, errStarting) || time.Now().After(deadline) {
			r.config.Observe(observe.Event{Kind: observe.Refused})
			return before, nil, err
		}
		if err := rules.Sleep(ctx, 30*time.Millisecond); err != nil {
			return before, nil, err
		}
	}
}

// tryClaim takes the lease of a topic. It returns errStarting if that may succeed soon: another start has the
// lease, and its record follows, or a run is about to end.
func (r *Runs) tryClaim(ctx context.Context, before *Record, topic string) (*heldLease, error) {
	if before.ID != "" && !before.State.Ended() {
		ending, err := r.isEnding(ctx, before)
		if ending {
			return nil, errStarting
		}
		if err != nil {
			return nil, err
		}
		return nil, errActive(before)
	}
	l := &heldLease{topic: topic, lease: lease{newID(), before.Fence + 1}, earlier: before.earlier(time.Now(), r.config.Retain)}
	if err := r.takeLease(ctx, before, l); err != nil {
		if errors.CodeOf(err) == errors.Aborted {
			err = errStarting
		}
		return nil, err
	}
	return l, nil
}

// isEnding reports whether the log of an active run has its end, which the record will have soon.
func (r *Runs) isEnding(ctx context.Context, rec *Record) (bool, error) {
	page, err := r.config.Histories.Read(ctx, broker.Query{Topic: logTopic(rec.Topic, rec.ID), Retention: r.retention()})
	return page.Closed, err
}

// takeLease stores a lease if there is none, or one of the run that has ended.
func (r *Runs) takeLease(ctx context.Context, before *Record, l *heldLease) error {
	held, version, err := r.leased(ctx, l.topic)
	if err != nil {
		return err
	}
	if version != 0 && held.ID != before.ID {
		return errStarting
	}
	l.version = version
	return r.storeLease(ctx, l)
}

// claim makes this node the owner of a new run, whose lease it has.
func (o *Owned) claim(ctx context.Context, c *Claim, before versionedRecord) error {
	r := o.runs
	o.rec = versionedRecord{version: before.version, Record: Record{
		ID: o.lease.ID, Topic: c.Topic, RequestID: c.RequestID, Fence: o.lease.Fence, State: Queued,
		Node: r.config.Node, StartedAt: time.Now().UTC(), Earlier: o.lease.earlier,
	}}
	if c.Reserve == nil {
		o.rec.State = Running
		return r.replace(ctx, &o.rec)
	}
	if err := r.replace(ctx, &o.rec); err != nil {
		return err
	}
	reservation, err := c.Reserve(ctx)
	if err != nil {
		o.withdraw(context.WithoutCancel(ctx), before.Record)
		return err
	}
	o.rec.State, o.rec.Reservation = o.rec.State.to(Running), reservation
	if err := r.replace(ctx, &o.rec); err != nil {
		if o.withdraw(context.WithoutCancel(ctx), before.Record) { // otherwise it is settled by who ends the run
			c.Return(context.WithoutCancel(ctx), reservation)
		}
		return err
	}
	return nil
}

// withdraw stores the record again that was there before the claim. It tries as long as a lease lasts, and
// reports whether no other node can go on with the run.
func (o *Owned) withdraw(ctx context.Context, before Record) bool {
	ctx, cancel := context.WithTimeout(ctx, o.runs.config.Lease)
	defer cancel()
	before.Topic = o.lease.topic // also if there was none
	err := o.runs.replaceIf(ctx, &versionedRecord{before, o.rec.version}, func(stored *Record) bool {
		return stored.Fence < o.lease.Fence || stored.Fence == o.lease.Fence && stored.ID == o.lease.ID
	})
	if err != nil {
		o.runs.log("a run that was refused is known as active until its lease expires", &o.rec.Record, err)
	}
	return err == nil
}

// replace stores a record of this node, whatever the outcome of earlier attempts was: only this node writes
// with its fence. A failover may have brought back an older version, or none.
func (r *Runs) replace(ctx context.Context, rec *versionedRecord) error {
	return r.replaceIf(ctx, rec, func(stored *Record) bool { return stored.ID == rec.ID && stored.Fence <= rec.Fence })
}

// replaceOlder is replace for a run that has begun. A failover may have brought back the record of an earlier run.
func (o *Owned) replaceOlder(ctx context.Context) error {
	return o.runs.replaceIf(ctx, &o.rec, func(stored *Record) bool { return !o.lease.isFollowed(stored.ID, stored.Fence) })
}

// replaceIf stores a record in place of whatever version of those that isOlder accepts, or of none.
func (r *Runs) replaceIf(ctx context.Context, rec *versionedRecord, isOlder func(*Record) bool) error {
	return retry(ctx, func(ctx context.Context) error {
		err := r.store(ctx, rec)
		if errors.CodeOf(err) != errors.Aborted {
			return err
		}
		stored, loading := r.load(ctx, rec.Topic)
		switch {
		case loading != nil:
			return loading
		case stored.version == 0 || isOlder(&stored.Record):
			rec.version = stored.version
			return errOtherVersion
		default:
			return err
		}
	})
}

// errActive is the error of a start while another run is active.
func errActive(rec *Record) error {
	return &errors.Error{
		Code: errors.Aborted, Message: "another run is active",
		Details: map[string]any{"run": rec.ID},
	}
}

var (
	errStarting     = &errors.Error{Code: errors.Aborted, Message: "another run is being started"}
	errOtherVersion = &errors.Error{Code: errors.Unavailable, Message: "the record has another version"}
)
