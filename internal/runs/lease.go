package runs

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run/observe"
)

// A heldLease is the lease of an owner. Only the goroutine that renews it changes it.
type heldLease struct {
	lease

	version uint64
	until   time.Time // when it expires at the earliest, by the clock of this process
}

// storeLease stores a lease. It expires at the earliest when its lifetime has passed since the call began.
func (r *Runs) storeLease(ctx context.Context, topic string, l *heldLease) error {
	began := time.Now()
	version, err := r.config.Histories.StoreValue(ctx, leaseKey(topic), encode(l.lease), l.version, r.config.Lease)
	if err == nil {
		l.version, l.until = version, began.Add(r.config.Lease)
	}
	return err
}

// keepLease renews the lease until the run has ended, or another node owns it. The producer is canceled when
// the lease may have expired; it is renewed nevertheless, so that this node ends the run.
func (o *Owned) keepLease() {
	defer close(o.leaseEnded)
	renewal, expired := o.runs.config.Lease/3, false
	for pause := renewal; ; {
		wait := pause
		if !expired {
			wait = min(pause, time.Until(o.lease.until))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-o.renew:
			timer.Stop()
		case <-o.ended:
			timer.Stop()
			return
		}
		switch err := o.renewLease(); {
		case err == nil:
			if pause, expired = renewal, false; o.outdated.Swap(false) {
				put(o.restored)
			}
			continue
		case errors.CodeOf(err) == errors.Aborted:
			o.lose()
			return
		}
		pause = renewal / 10
		if !expired && !time.Now().Before(o.lease.until) {
			expired = true
			o.cancel(errLeaseLost)
			o.runs.config.Observe(observe.Event{Kind: observe.LeaseLost})
		}
	}
}

// renewLease stores the lease again. A failover may have brought back an older version, that of an earlier
// run, or none.
func (o *Owned) renewLease() error {
	ctx, cancel := context.WithTimeout(o.runs.ctx, min(storeTimeout, o.runs.config.Lease/3))
	defer cancel()
	err := o.runs.storeLease(ctx, o.topic, o.lease)
	if errors.CodeOf(err) != errors.Aborted {
		return err
	}
	value, err := o.runs.config.Histories.LoadValue(ctx, leaseKey(o.topic))
	if err != nil {
		return err
	}
	if value.Version != 0 {
		var held lease
		if err := decode(value.Data, &held); err != nil {
			return err
		}
		if held.Fence > o.lease.Fence || held.Fence == o.lease.Fence && held.ID != o.lease.ID {
			return errLost
		}
	} else if err := o.isReplaced(ctx); err != nil {
		return err
	}
	o.outdated.Store(true) // the store may have lost the record, too
	o.lease.version = value.Version
	return o.runs.storeLease(ctx, o.topic, o.lease)
}

// isReplaced returns an error if another node has ended the run, or goes on with it.
func (o *Owned) isReplaced(ctx context.Context) error {
	rec, err := o.runs.load(ctx, o.topic)
	if err == nil && rec.ID != "" && rec.Fence > o.lease.Fence {
		return errLost
	}
	return err
}

// dropLease deletes the lease of a run that has ended.
func (o *Owned) dropLease(ctx context.Context) {
	_, err := o.runs.config.Histories.StoreValue(ctx, leaseKey(o.topic), nil, o.lease.version, 0)
	if err != nil && isTemporary(err) {
		o.runs.log("the lease of a run that has ended expires later", &o.rec.Record, err)
	}
}

var (
	errLeaseLost = &errors.Error{Code: errors.Unavailable, Message: "the node was cut off from the store"} // the lease may have expired
	errLost      = &errors.Error{Code: errors.Aborted, Message: "the lease belongs to another node"}
)
