package brokertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A faultyCall is a call of a node that waits for the answer of the store. Its steps are events: it
// is sent, the store processes it, the answer arrives. Each of them may never happen.
type faultyCall struct {
	node    *faultyNode
	what    string
	isWrite bool
	topic   string      // of an Append
	line    *faultyLine // in which the store processes calls in the order in which they began; may be nil
	durable bool

	process    func() error  // at the store; what it sets belongs to the caller once done is closed
	isComplete func() bool   // whether process need not be called again; nil if it is called once
	done       chan struct{} // closed when err is set

	dropped   bool // the store will not process it
	processed bool
	failure   error // the error of process
	term      int   // of the store that has processed it
	changes   int   // of the store when it had processed it
	hangs     bool  // it ends with its context, the node or the interruption
	finished  bool
	err       error
}

// do waits for the answer of a call. It returns nil if the store has processed it without an error.
func (n *faultyNode) do(ctx context.Context, c *faultyCall) error {
	c.node, c.done = n, make(chan struct{})
	if err := ctx.Err(); err != nil {
		return c.because(err)
	}
	if !n.begin(c) {
		return errors.Errorf(errors.Unavailable, "cannot %s: the node is closed", c.what)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		n.abandon(c, ctx.Err())
	}
	return c.err
}

func (c *faultyCall) because(err error) error { return fmt.Errorf("cannot %s: %w", c.what, err) }

// begin sends a call, unless the node is closed.
func (n *faultyNode) begin(c *faultyCall) bool {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if n.closing {
		return false
	}
	n.calls = append(n.calls, c)
	n.store.waiting++
	n.store.sendLocked(c)
	return true
}

// sendLocked schedules what happens to a call.
func (s *FaultyStore) sendLocked(c *faultyCall) {
	n := c.node
	switch {
	case c.finished:
	case n.crashed:
		c.dropped, c.hangs = true, true
	case n.host.paused:
		n.held = append(n.held, func() { s.sendLocked(c) })
	case !n.up:
		c.dropped = true
		s.breakLocked(c)
	case s.happensLocked("lost answer", s.faults.LostAnswers):
		s.loseLocked(c)
	default:
		s.arriveLocked(c, func() { s.afterLocked(s.delayLocked(), func() { s.answerLocked(c) }) })
	}
}

// arriveLocked lets the store process a call after some time, and then calls next.
func (s *FaultyStore) arriveLocked(c *faultyCall, next func()) {
	s.afterLocked(c.line.next(s.delayLocked()), func() {
		switch s.processLocked(c); {
		case c.processed:
			next()
		case !c.dropped:
			s.arriveLocked(c, next)
		}
	})
}

// processLocked lets the store process a call, or a part of it, unless it was dropped.
func (s *FaultyStore) processLocked(c *faultyCall) {
	if c.dropped = c.dropped || c.node.crashed || c.node.closed; c.dropped {
		return
	}
	if c.failure = c.process(); c.topic != "" && !c.finished {
		s.unanswered[c.topic]++
	}
	c.term, c.changes = s.data.terms, len(s.data.changes)
	c.processed = c.isComplete == nil || c.isComplete()
}

// answerLocked ends a call with the result of the store. One with a Durability is confirmed now, if
// the same store still can.
func (s *FaultyStore) answerLocked(c *faultyCall) {
	if c.durable && c.failure == nil && !c.finished {
		if c.term != s.data.terms {
			s.endLocked(c, s.brokenLocked(c))
			return
		}
		s.data.confirmed = max(s.data.confirmed, c.changes)
	}
	s.endLocked(c, c.failure)
}

// loseLocked loses the call or its answer: the store never processes it, or before the caller has
// an error, or after that.
func (s *FaultyStore) loseLocked(c *faultyCall) {
	fail := func() { s.endLocked(c, s.brokenLocked(c)) }
	d := s.delayLocked()
	if s.rng.IntN(4) == 0 {
		d = time.Duration(s.rng.Int64N(int64(10 * time.Second)))
	}
	switch s.rng.IntN(3) {
	case 0:
		c.dropped = true
		s.afterLocked(d, fail)
	case 1:
		s.arriveLocked(c, func() { s.afterLocked(d, fail) })
	default:
		s.afterLocked(d, func() {
			fail()
			s.afterLocked(s.delayLocked(), func() { s.processLocked(c) })
		})
	}
}

// breakLocked ends a call whose connection is interrupted, now or when the connection works again.
func (s *FaultyStore) breakLocked(c *faultyCall) {
	if c.hangs = s.coinLocked() && !c.node.closing; !c.hangs {
		s.afterLocked(s.delayLocked(), func() { s.endLocked(c, s.brokenLocked(c)) })
	}
}

// brokenLocked returns the error of a call that has no answer. Whether a dropped one was stored is
// unknown, or not.
func (s *FaultyStore) brokenLocked(c *faultyCall) error {
	if c.isWrite && (!c.dropped || s.coinLocked()) {
		return &errors.Error{Code: errors.OutcomeUnknown, Message: "the change may have been stored", Err: errBroken}
	}
	return &errors.Error{Code: errors.Unavailable, Message: "cannot " + c.what, Err: errBroken}
}

var errBroken = errors.New("brokertest: the connection to the simulated store is interrupted")

// endLocked ends a call, or when its host runs again.
func (s *FaultyStore) endLocked(c *faultyCall, err error) {
	switch n := c.node; {
	case n.crashed:
		c.hangs = true
		return
	case n.host.paused:
		c.node.held = append(c.node.held, func() { s.endLocked(c, err) })
		return
	}
	s.finishLocked(c, err)
}

func (s *FaultyStore) finishLocked(c *faultyCall, err error) {
	if c.finished {
		return
	}
	c.finished, c.err = true, err
	s.waiting--
	if c.processed && c.topic != "" {
		s.unanswered[c.topic]--
	}
	n := c.node
	n.calls = slices.DeleteFunc(n.calls, func(other *faultyCall) bool { return other == c })
	n.signalLocked()
	close(c.done)
}

// abandon ends a call whose context is done.
func (n *faultyNode) abandon(c *faultyCall, cause error) {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.finished:
		return
	case !c.isWrite, !c.processed && s.coinLocked():
		c.dropped = true
		s.finishLocked(c, c.because(cause))
	default:
		s.finishLocked(c, &errors.Error{Code: errors.OutcomeUnknown, Message: "the change may have been stored", Err: cause})
	}
}
