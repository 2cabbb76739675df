package appendqueue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A confirmQueue waits until stored publications are as durable as they must be. Publications that
// are stored while others are being confirmed share the next round trip: a replica that has received a
// write has received all that the server wrote before. So only those wait for each other that the
// same server must confirm in the same way, and Queue does not wait for any. A server is known
// by its lineage: a path may have had another master when they were stored.
//
// Each confirmKey with publications has up to maxConfirmRounds goroutines, run. mu is not held while
// exec runs.
type confirmQueue[K any] struct {
	exec func(d broker.Durability, partition int, limit time.Duration) Confirmation

	mu      sync.Mutex
	byKey   map[confirmKey]*unconfirmedCalls[K]
	running sync.WaitGroup // of the goroutines
}

type unconfirmedCalls[K any] struct {
	waiting []*Call[K] // for a round trip
	rounds  int        // goroutines
}

type confirmKey struct {
	lineage    string
	durability broker.Durability
}

// A confirmState belongs to a call with a Durability.
type confirmState struct {
	lineage string // in which the server has executed the script
	until   time.Time
	stored  atomic.Bool // the queue has the call
}

// A Confirmation is what a server says about everything that it had stored before it was asked.
type Confirmation struct {
	Lineage string // of the server
	Missing error  // why it is not confirmed; nil if it is
	Err     error  // the server does not answer, or cannot confirm anything
}

// confirmTimeout is how long a publication waits if its context permits more.
const confirmTimeout = 5 * time.Second

// maxConfirmRounds is how many round trips with the same key are in flight. What is stored when one has
// just begun does not wait for its end.
const maxConfirmRounds = 2

func newConfirmQueue[K any](exec func(broker.Durability, int, time.Duration) Confirmation) *confirmQueue[K] {
	return &confirmQueue[K]{exec: exec, byKey: map[confirmKey]*unconfirmedCalls[K]{}}
}

// add makes the queue end a call that is stored.
func (q *confirmQueue[K]) add(c *Call[K]) {
	c.confirm.until = time.Now().Add(confirmTimeout)
	c.confirm.stored.Store(true)
	key := confirmKey{c.confirm.lineage, c.Durability}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.byKey[key]
	if u == nil {
		u = &unconfirmedCalls[K]{}
		q.byKey[key] = u
	}
	u.waiting = append(u.waiting, c)
	if u.rounds < maxConfirmRounds {
		u.rounds++
		q.running.Go(func() { q.run(key, u) })
	}
}

// run confirms publications until none waits. It waits as long as the oldest one may.
func (q *confirmQueue[K]) run(key confirmKey, u *unconfirmedCalls[K]) {
	var left []*Call[K] // not confirmed yet
	for {
		calls := q.next(key, u, left)
		if len(calls) == 0 {
			return
		}
		oldest := calls[0]
		r := q.exec(key.durability, oldest.partition, time.Until(oldest.confirm.until))
		now := time.Now()
		left = slices.DeleteFunc(calls, func(c *Call[K]) bool { return c.settle(&r, now) })
	}
}

// next returns the calls of the next round trip, oldest first: those that are left and those that wait,
// except for those whose callers have gone. If there are none, the goroutine ends.
func (q *confirmQueue[K]) next(key confirmKey, u *unconfirmedCalls[K], left []*Call[K]) []*Call[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, now := append(left, u.waiting...), time.Now()
	u.waiting = nil
	calls = slices.DeleteFunc(calls, func(c *Call[K]) bool { return c.isOverdue(now) })
	if len(calls) > 0 {
		return calls
	}
	if u.rounds--; u.rounds == 0 {
		delete(q.byKey, key)
	}
	return nil
}

// settle ends a call, unless it waits for another round trip.
func (c *Call[K]) settle(r *Confirmation, now time.Time) (isOver bool) {
	switch {
	case r.Err != nil:
		c.Err = unconfirmed(r.Err)
	case r.Lineage != c.confirm.lineage:
		c.Err = unconfirmed(errOtherServer)
	case r.Missing == nil:
	case now.Before(c.confirm.until):
		return false
	default:
		c.Err = unconfirmed(r.Missing)
	}
	if c.Err != nil {
		c.Result = broker.Appended{}
	}
	close(c.done)
	return true
}

var errOtherServer = errors.New("another server has become the master, or its first replica has connected")

// unconfirmed returns the error of a publication that is stored but not confirmed.
func unconfirmed(cause error) error {
	return &errors.Error{Code: errors.OutcomeUnknown, Message: "the publication is stored, but not confirmed", Err: cause}
}
