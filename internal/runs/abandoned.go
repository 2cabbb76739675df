package runs

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/run/observe"
)

// This file ends the runs of owners that have died: any node does it that has readers of the run, or is
// asked about it.

// watchInterval is the time between two looks at the lease of a run whose owner is silent. A lease must be
// missing twice, because the owner stores it again after a failover of the store.
const watchInterval = 500 * time.Millisecond

// watch looks at the lease while the run has readers here, is not owned here and has not ended.
func (v *view) watch() {
	missing := 0
	for rules.Sleep(v.ctx, watchInterval) == nil {
		switch watched, silent := v.isWatched(); {
		case !watched:
			return
		case !silent:
			missing = 0
			continue
		}
		ctx, cancel := context.WithTimeout(v.ctx, storeTimeout)
		held, _, err := v.runs.leased(ctx, v.topic)
		cancel()
		if held.ID == v.id || err != nil {
			missing = 0
			continue
		}
		if missing++; missing >= 2 {
			v.endAbandoned(held.ID)
			missing = 0
		}
	}
}

// startWatching begins watch unless it runs.
func (v *view) startWatching() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.watching {
		v.watching = true
		go v.watch()
	}
}

// isWatched reports whether watch is to go on, and whether the owner has been silent for so long that its
// lease may have expired. After a failover of the store, the owner has as long as a lease to store it
// again.
func (v *view) isWatched() (watched, silent bool) {
	v.runs.mu.Lock()
	defer v.runs.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.readers == 0 || v.owner != nil || v.state.end != nil {
		v.watching = false
		return false, false
	}
	lease := v.runs.config.Lease
	return true, time.Since(v.heardAt) > lease*2/3 && time.Since(v.failover) > lease
}

// endAbandoned ends the run if it is one that the record has as active, unless a later run has the lease: a failover has brought
// the record back, and the owner of the later run stores its own again.
func (v *view) endAbandoned(leased string) {
	r := v.runs
	rec, err := r.load(v.ctx, v.topic)
	switch {
	case err != nil:
	case rec.ID != v.id || rec.State.Ended():
		v.adopt(rec.find(v.id, ""))
	case leased == "":
		if err := r.takeOver(v.ctx, rec); err != nil {
			r.log("a run without an owner has not been ended; the next attempt follows", &rec.Record, err)
		}
	}
}

// adopt ends the view as the record says, if the log has lost the end. Without a record, the run has been
// forgotten. Items that this node has not received yet are read before.
func (v *view) adopt(rec *Record) {
	end := End{State: Interrupted, Error: interrupted, At: time.Now()}
	if rec != nil && rec.End != nil {
		end = *rec.End
	}
	v.mu.Lock()
	v.cursor.Begin()
	v.readLocked()
	v.mu.Unlock()
	if v.await(v.ctx, v.cursor.IsLive) != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.end == nil && v.cursor.IsLive() {
		v.state.end = &end
		v.notifyLocked()
	}
}

// leased returns the lease of a topic. Without one, the version is 0.
func (r *Runs) leased(ctx context.Context, topic string) (held lease, version uint64, err error) {
	value, err := r.config.Histories.LoadValue(ctx, leaseKey(topic))
	if err != nil || value.Version == 0 {
		return held, 0, err
	}
	err = decode(value.Data, &held)
	return held, value.Version, err
}

// isAbandoned reports whether an active run has no lease, twice. One of a later run is one, see endAbandoned.
func (r *Runs) isAbandoned(ctx context.Context, rec *Record) (bool, error) {
	for attempt := range 2 {
		if attempt > 0 {
			if err := rules.Sleep(ctx, watchInterval); err != nil {
				return false, err
			}
		}
		if held, _, err := r.leased(ctx, rec.Topic); held.ID != "" || err != nil {
			return false, err
		}
	}
	return true, nil
}

// takeOver ends an abandoned run, or goes on with it. Of several nodes, one does it: the others return nil.
func (r *Runs) takeOver(ctx context.Context, rec versionedRecord) error {
	rec.Fence++
	rec.Node = r.config.Node
	if err := r.store(ctx, &rec); err != nil {
		if errors.CodeOf(err) == errors.Aborted {
			return nil
		}
		return err
	}
	if r.config.Resume != nil && rec.State == Running {
		// A log that is closed has an end, which the record lacks.
		if err := r.resume(ctx, rec); errors.CodeOf(err) != errors.FailedPrecondition {
			return err
		}
	}
	end, err := r.appendEnd(ctx, &rec.Record, End{State: Interrupted, Error: interrupted, At: time.Now()})
	if err != nil {
		return err
	}
	return r.finish(ctx, &rec, end)
}

// appendEnd appends the end of a run that this node has taken over, and returns the end that the log has. Before, an
// entry makes the log refuse the former owner, so that the end has all items.
func (r *Runs) appendEnd(ctx context.Context, rec *Record, end End) (End, error) {
	for {
		if err := r.fenceOff(ctx, rec); err != nil && isTemporary(err) {
			return end, err
		}
		state, err := r.stateOf(ctx, rec.Topic, rec.ID, nil)
		switch {
		case err != nil:
			return end, err
		case state.end != nil:
			return *state.end, nil
		case state.fence > rec.Fence:
			return end, errTakenOver
		case state.stop != nil:
			end.State, end.By, end.Error = Stopped, state.stop.By, stopped
		}
		end.Items = state.count
		if _, err = r.append(ctx, rec, &entry{Fence: rec.Fence, End: &end}, state.epoch); err == nil || isTemporary(err) {
			return end, err
		}
	}
}

// fenceOff makes the log refuse what former owners append. An error that is not temporary means that it has an end,
// or a later owner.
func (r *Runs) fenceOff(ctx context.Context, rec *Record) error {
	_, err := r.append(ctx, rec, &entry{Fence: rec.Fence, Resume: r.config.Node}, "")
	return err
}

// append appends an entry to the log of a run, if its epoch is still the one that the caller knows, whatever becomes of
// single attempts. An end closes the log.
func (r *Runs) append(ctx context.Context, rec *Record, e *entry, epoch string) (stored broker.Appended, _ error) {
	err := retry(ctx, func(ctx context.Context) (err error) {
		stored, err = r.config.Histories.Append(ctx, broker.Append{
			Topic: logTopic(rec.Topic, rec.ID), Retention: r.retention(), Packet: encode(e),
			IdempotencyKey: idempotencyKey(e, epoch), Fence: e.Fence, Last: e.End != nil, Epoch: epoch,
		})
		return err
	})
	return stored, err
}

// finish settles the budget of a run, and stores its end in the record.
func (r *Runs) finish(ctx context.Context, rec *versionedRecord, end End) error {
	if err := r.settle(ctx, &rec.Record); err != nil {
		return err
	}
	rec.State, rec.End, rec.Settled = end.State, &end, true
	err := retry(ctx, func(ctx context.Context) error { return r.store(ctx, rec) })
	if err != nil && errors.CodeOf(err) != errors.Aborted {
		return err
	}
	if err == nil {
		r.config.Changed(rec.Record)
		r.config.Observe(observe.Event{Kind: observe.Abandoned, State: string(end.State)})
	}
	return nil
}

// settle replaces what a run has taken from its budget by what its log says that it has used.
func (r *Runs) settle(ctx context.Context, rec *Record) error {
	if rec.Reservation == nil || rec.Settled {
		return nil
	}
	state, err := r.stateOf(ctx, rec.Topic, rec.ID, r.config.Decode)
	if err != nil {
		return err
	}
	return retry(ctx, func(ctx context.Context) error { return r.config.Settle(ctx, rec.Reservation, state.items) })
}
