package sequencer

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A StateRest is what a subscriber that receives publications already has still to receive of the state of
// its topic. It holds at most one part. Its methods must be called by one goroutine at a time, until
// Close is called.
//
// The state is that of the position with which the subscriber began. A key that has changed since is left
// out: the publication that has changed it reaches the subscriber like any other. So that no
// part brings back what a publication has replaced or removed before, the keys that change while a part
// is read or waits are noted, and the part is sent under the Sequencer's lock.
type StateRest struct {
	s     *Sequencer
	query broker.StateQuery
	at    broker.Position
	part  []broker.Publication // that was read, without what was sent
	last  bool                 // no part follows

	// The Sequencer's lock guards the following. While a part is read, keys are those that change. After
	// that, they are the keys of the part that have not changed.
	keys     map[string]struct{}
	reading  bool
	tooMany  bool // keys have changed
	newEpoch bool
}

// errFailedOver ends a StateRest whose state is that of an epoch that has ended.
var errFailedOver = &errors.Error{Code: errors.Unavailable, Message: "the history of the topic has failed over while its state was read"}

// Complete reports whether nothing is left.
func (r *StateRest) Complete() bool { return r.last && len(r.part) == 0 }

// IsLast reports whether no part follows the one that was read.
func (r *StateRest) IsLast() bool { return r.last }

// BeginAgain makes the rest the whole state, of a position that the Sequencer has just returned, for a
// subscriber that has not received the first part.
func (r *StateRest) BeginAgain(at broker.Position) {
	r.at, r.query.Cursor, r.last = at, "", false
}

// Read reads the next part if nothing is left of the one before, and returns it: nothing if there is no
// other. While the store cannot be read, it waits. It returns an error if ctx is done, the Sequencer is
// closed, the store has failed over, or keys change too fast.
func (r *StateRest) Read(ctx context.Context) ([]broker.Publication, error) {
	for len(r.part) == 0 && !r.last {
		result, err := r.s.attempt(ctx, func() (outcome, error) { return r.tryRead(ctx) })
		switch {
		case err != nil:
			return nil, err
		case result == unrecoverable:
			return nil, errFailedOver
		case result == again:
			return nil, errUnsettled
		}
	}
	return r.part, nil
}

// tryRead is one attempt of Read.
func (r *StateRest) tryRead(ctx context.Context) (outcome, error) {
	r.s.unlisten(r)
	r.reading, r.tooMany, r.newEpoch, r.keys = true, false, false, map[string]struct{}{}
	r.s.listen(r) // before it reads, so that it learns of every key that changes after that
	part, err := r.s.reader.histories.ReadState(ctx, r.query)
	if err == nil {
		err = r.s.awaitPosition(ctx, part.Position) // the part lacks keys that have changed until then
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.reading = false
	switch {
	case err != nil:
		return again, err
	case part.Position.Epoch != r.at.Epoch:
		return unrecoverable, nil
	case r.tooMany:
		return again, nil
	}
	r.query.Cursor, r.last = part.Next, part.Next == ""
	r.part = slices.DeleteFunc(part.Publications, func(p broker.Publication) bool {
		_, changed := r.keys[p.StateKey]
		return changed || p.Position.Offset > r.at.Offset
	})
	sortState(r.part)
	clear(r.keys)
	for _, p := range r.part {
		r.keys[p.StateKey] = struct{}{}
	}
	return joined, nil
}

// Send calls send with the Sequencer's lock held and with what is left of the part. send queues the
// beginning of it and returns how many publications those are. Send returns an error, and does not call
// send, if the Sequencer is closed or the store has failed over.
func (r *StateRest) Send(send func(part []broker.Publication) (sent int)) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case r.s.isClosed():
		return ErrClosed
	case r.newEpoch:
		return errFailedOver
	}
	r.part = slices.DeleteFunc(r.part, func(p broker.Publication) bool {
		_, unchanged := r.keys[p.StateKey]
		return !unchanged
	})
	r.part = r.part[send(r.part):]
	return nil
}

// Close must be called when the subscriber has received everything, or receives nothing any more.
func (r *StateRest) Close() {
	r.s.unlisten(r)
	r.part = nil
}

// deliverLocked notes the key of a publication that has reached the subscriber.
func (r *StateRest) deliverLocked(p broker.Publication) {
	switch {
	case !r.reading:
		delete(r.keys, p.StateKey)
	case len(r.keys) >= maxReceived:
		r.tooMany = true
	default:
		r.keys[strings.Clone(p.StateKey)] = struct{}{}
	}
}

func (r *StateRest) loseLocked(l Loss) { r.newEpoch = r.newEpoch || l.endsEpoch() }
