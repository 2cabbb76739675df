package runs

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A heldLease is the lease of an owner. Only the goroutine that renews it changes it.
type heldLease struct {
	lease

	topic   string
	version uint64
	until   time.Time // when it expires at the earliest, by the clock of this process
	earlier []Earlier // the runs before this one, whose leases and records a failover may bring back
}

// isFollowed reports whether a run with an ID and a fence is a later one, or this one with a later owner. A run before this
// one is not, whatever fence the nodes have given it that have ended it, or gone on with it, after a failover.
func (l *heldLease) isFollowed(id string, fence uint64) bool {
	if slices.ContainsFunc(l.earlier, func(e Earlier) bool { return e.ID == id }) {
		return false
	}
	return fence > l.Fence || fence == l.Fence && id != l.ID
}

// storeLease stores a lease. It expires at the earliest when its lifetime has passed since the call began.
func (r *Runs) storeLease(ctx context.Context, l *heldLease) error {
	began := time.Now()
	version, err := r.config.Histories.StoreValue(ctx, leaseKey(l.topic), encode(l.lease), l.version, r.config.Lease)
	if err == nil {
		l.version, l.until = version, began.Add(r.config.Lease)
	}
	return err
}

// renew renews the lease, and then stores the record again if that is necessary.
func (o *Owned) renew() {
	isOutdated, err := o.renewLease()
	restore := false
	o.handle(func(now time.Time) error {
		o.state.outdated = o.state.outdated || isOutdated
		cause := o.state.renewed(now, o.lease.until, err)
		restore = err == nil && o.state.restore()
		return cause
	})
	if restore {
		o.restore()
	}
}

// renewLease stores the lease again. A failover may have brought back an older version, that of an earlier
// run, or none. Then the store may have lost the record, too.
func (o *Owned) renewLease() (isOutdated bool, err error) {
	ctx, cancel := context.WithTimeout(o.runs.ctx, min(storeTimeout, o.runs.config.Lease/3))
	defer cancel()
	err = o.runs.storeLease(ctx, o.lease)
	if errors.CodeOf(err) != errors.Aborted {
		return false, err
	}
	held, version, err := o.runs.leased(ctx, o.lease.topic)
	if err == nil && version == 0 {
		err = o.isReplaced(ctx)
	} else if err == nil && o.lease.isFollowed(held.ID, held.Fence) {
		err = errLost
	}
	if err != nil {
		return false, err
	}
	o.lease.version = version
	return true, o.runs.storeLease(ctx, o.lease)
}

// isReplaced returns an error if another node has ended the run, or goes on with it.
func (o *Owned) isReplaced(ctx context.Context) error {
	rec, err := o.runs.load(ctx, o.lease.topic)
	if err == nil && rec.Fence > o.lease.Fence && o.lease.isFollowed(rec.ID, rec.Fence) {
		return errLost
	}
	return err
}

// restore stores the record again, of which a failover may have brought back an older version, or none.
func (o *Owned) restore() {
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	if o.rec.State.Ended() || o.isLost() {
		return
	}
	if err := o.replaceOlder(o.runs.ctx); err != nil && errors.CodeOf(err) != errors.Aborted {
		o.runs.log("the record of a run is not stored again after a failover", &o.rec.Record, err)
	}
}

// isLost reports whether another node has ended the run, or goes on with it. It waits while the lease is renewed.
func (o *Owned) isLost() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.state.renewing {
		o.changed.Wait()
	}
	return o.state.phase == lost
}

// dropLease deletes the lease of a run that has ended, unless another node has it.
func (o *Owned) dropLease() {
	if o.isLost() {
		return
	}
	_, err := o.runs.config.Histories.StoreValue(context.WithoutCancel(o.producing), leaseKey(o.lease.topic), nil, o.lease.version, 0)
	if err != nil && isTemporary(err) {
		o.runs.log("the lease of a run that has ended expires later", &o.rec.Record, err)
	}
}

var (
	errLeaseLost = &errors.Error{Code: errors.Unavailable, Message: "the node was cut off from the store"} // the lease may have expired
	errLost      = &errors.Error{Code: errors.Aborted, Message: "the lease belongs to another node"}
)
