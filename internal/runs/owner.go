package runs

import (
	"encoding/json"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An ownerState is what the owner of a run knows and does next: a state machine without a lock, a store, goroutines and a
// clock. Its methods take events and the time; doc.go has what they do in each phase. Those that return an error return
// the cause for which the context of the producer must be canceled, or nil.
type ownerState struct {
	config *Config
	phase  phase
	wait   time.Time // until when canceled and lost wait for the producer, zero if it has returned, and ended for readers

	// The log.
	items   []json.RawMessage // all of the run, for the case that the store loses some
	bytes   int64             // of items
	stored  int               // items that the log has
	pending int               // bytes of items that the log does not have
	flushed int               // items that do not wait for others
	end     *End              // follows the items
	read    bool              // this node has read the end
	epoch   string            // in which the log was appended to, or was read; "" before
	behind  bool              // the log may have other entries than those that were appended
	refusal error             // of the last entry, until the log is compared
	lost    bool              // items were dropped that the store refuses
	working bool              // a goroutine does tasks, or the record is being claimed
	batches int
	last    time.Time // when the last entry was appended

	// The lease.
	renewal  time.Time // when it is renewed next; zero while it is renewed, unless there was a failover meanwhile
	renewing bool
	expired  bool // it may have expired
	outdated bool // the store may have lost the record
}

// A phase is how far an owner is: see doc.go. Until closing, the lease is renewed.
type phase uint8

const (
	claiming phase = iota
	producing
	canceled
	ending
	closing
	ended
	lost
	left
)

// A task is what the goroutine of an owner does next. There is at most one such goroutine.
type task uint8

const (
	noTask      task = iota // the goroutine ends
	compareLog              // read which items the log has
	appendEntry             // to the log
	giveUp                  // end the run without its producer, which has not returned
	finishRun               // settle the budget, and store the end in the record
	leaveRun                // another node may own it
)

const (
	// canceledWait is how long a run waits for a producer that was canceled. A producer that returns later can emit
	// nothing more, so its readers need not wait for it. As long, a run that has ended waits until the readers on this
	// node can have the end, so that a shutdown does not end their reading before it.
	canceledWait = time.Second

	maxPending   = 64 << 10 // bytes; a producer that is faster waits
	maxBatch     = 64 << 10 // bytes of one entry
	longRun      = 1000     // batches after which items wait longer
	longRunFlush = 5        // halves of Config.Flush that they then wait
)

// begin: the record is stored, and the producer begins.
func (s *ownerState) begin(now time.Time) error {
	s.working, s.renewal = false, now // a failover may have lost the lease before the record was stored
	if s.phase == claiming {
		s.phase = producing
	} else {
		s.wait = now.Add(canceledWait)
	}
	return nil
}

// emit adds an item of the producer. It reports whether there may be a task: further items wait with it.
func (s *ownerState) emit(item json.RawMessage) bool {
	s.items = append(s.items, item)
	s.bytes += int64(len(item))
	s.pending += len(item)
	return !s.working && (s.pending == len(item) || s.pending >= s.config.FlushBytes)
}

// cancel: the context of the producer is canceled.
func (s *ownerState) cancel(now time.Time) error {
	if s.phase == producing {
		s.phase, s.wait = canceled, now.Add(canceledWait)
	}
	return nil
}

// returned: the producer has returned, or was given up. It reports false if that comes too late to be the end.
func (s *ownerState) returned(end End) bool {
	switch s.phase {
	case producing, canceled:
		end.Items = uint64(len(s.items))
		s.phase, s.end = ending, &end
	case lost:
	default:
		return false
	}
	s.wait = time.Time{}
	return true
}

// hear: this node has read a request to stop in the log, or the end, perhaps that of this node.
func (s *ownerState) hear(now time.Time, stop *stopRequest, end *End) error {
	switch {
	case s.phase == claiming || s.phase > ended:
		return nil
	case end == nil:
		return &stopCause{stop.By}
	case s.phase < ending:
		return s.lose(now)
	}
	s.read = true
	return nil
}

// lose: another node has ended the run, or goes on with it.
func (s *ownerState) lose(now time.Time) error {
	switch s.phase {
	case producing:
		s.wait = now.Add(canceledWait)
	case ended:
		s.wait = time.Time{}
	case lost, left:
		return nil
	}
	s.phase = lost
	return errTakenOver
}

// failOver: the store may have lost something.
func (s *ownerState) failOver(now time.Time) error {
	s.behind, s.outdated, s.renewal = true, true, now
	return nil
}

// appended: the log has an entry, whose items have a size.
func (s *ownerState) appended(e *entry, size int, epoch string) {
	if s.epoch == "" {
		s.epoch = epoch
	}
	if e.End == nil {
		s.stored += len(e.Items)
		s.pending -= size
		s.batches++
	} else if s.phase == ending {
		s.phase = closing
	}
}

// compared: the log has a number of items, and no entries of another node. If it is as this node knew it, a refusal is
// permanent: the run ends with that error, without the items that the log does not have.
func (s *ownerState) compared(count uint64, epoch string) (cause error) {
	n := min(int(count), len(s.items)) //nolint:gosec // at most MaxItems
	if s.refusal != nil && n == s.stored && epoch == s.epoch {
		cause = s.fail(s.refusal)
	}
	s.epoch, s.stored, s.pending, s.refusal = epoch, n, 0, nil
	for _, item := range s.items[n:] {
		s.pending += len(item)
	}
	return cause
}

// fail ends the run, because the store never accepts the next entry. If that is the end, only the record will have it.
func (s *ownerState) fail(refusal error) error {
	cause := &errors.Error{Code: errors.CodeOf(refusal), Message: "the run cannot be stored", Err: refusal}
	if s.phase == ending && s.stored == len(s.items) {
		s.phase = closing
	} else if s.phase == ending {
		s.end = &End{State: Failed, Items: uint64(s.stored), Error: payload(cause), At: s.end.At} //nolint:gosec // an index
	}
	s.items, s.lost = s.items[:s.stored], true
	return cause
}

// finished: the record has the end, or another node has to store it.
func (s *ownerState) finished(now time.Time) error {
	if s.phase == closing {
		s.phase, s.wait = ended, now.Add(canceledWait)
	}
	return nil
}

// renew reports whether the lease is to be renewed now.
func (s *ownerState) renew(now time.Time) bool {
	if s.phase > closing || s.renewing || now.Before(s.renewal) {
		return false
	}
	s.renewing, s.renewal = true, time.Time{}
	return true
}

// renewed: the attempt to renew the lease, which expires at a time at the earliest, has ended. The producer is canceled
// when it may have expired; it is renewed nevertheless, so that this node ends the run.
func (s *ownerState) renewed(now, expires time.Time, err error) (cause error) {
	s.renewing = false
	pause := s.config.Lease / 3
	switch {
	case err == nil:
		s.expired = false
	case errors.CodeOf(err) == errors.Aborted:
		return s.lose(now)
	default:
		pause /= 10
		if !s.expired && s.phase <= closing && !now.Before(expires) {
			s.expired, cause = true, errLeaseLost
		}
	}
	if s.renewal.IsZero() {
		s.renewal = now.Add(pause)
	}
	if !s.expired {
		s.renewal = earlier(s.renewal, expires)
	}
	return cause
}

// restore reports whether the record is to be stored again, after the lease: without that, other nodes end the run.
func (s *ownerState) restore() bool {
	if !s.outdated || s.phase < producing || s.phase > ending {
		return false
	}
	s.outdated = false
	return true
}

// schedule reports whether a goroutine must begin to do tasks. It must be called again at a time; the zero time is never.
func (s *ownerState) schedule(now time.Time) (work bool, again time.Time) {
	if !s.working {
		var t task
		t, again = s.next(now)
		s.working = t != noTask
		work = s.working
	}
	if s.phase <= closing && !s.renewing {
		again = earlier(again, s.renewal)
	}
	return work, again
}

// take returns the next task of the goroutine, and the entry to append. Without a task, the goroutine must end.
func (s *ownerState) take(now time.Time) (t task, e *entry) {
	t, _ = s.next(now)
	switch t {
	case noTask:
		s.working = false
	case compareLog:
		s.behind = false
	case appendEntry:
		e, s.last = s.entry(), now
	case leaveRun:
		s.phase = left
	}
	return t, e
}

// entry returns the next items that the log does not have, or the end.
func (s *ownerState) entry() *entry {
	n, size := s.stored, 0
	for ; n < len(s.items); n++ {
		if size += len(s.items[n]); size > maxBatch && n > s.stored {
			break
		}
	}
	if n == s.stored {
		return &entry{End: s.end}
	}
	return &entry{First: uint64(s.stored), Items: s.items[s.stored:n:n]} //nolint:gosec // an index
}

// next returns the next task, or when there may be one.
func (s *ownerState) next(now time.Time) (t task, at time.Time) {
	isOver := !s.wait.IsZero() && !now.Before(s.wait)
	switch {
	case isOver && (s.phase == canceled || s.phase == lost):
		return giveUp, at
	case s.phase == closing:
		return finishRun, at
	case s.phase == ended && (isOver || s.read), s.phase == lost && s.wait.IsZero() && !s.renewing:
		return leaveRun, at
	case s.phase > closing:
		return noTask, s.wait
	case s.behind:
		return compareLog, at
	case s.stored == len(s.items):
		if s.end == nil {
			return noTask, s.wait
		}
	case s.end == nil && s.stored >= s.flushed && s.pending < s.config.FlushBytes:
		flush := s.config.Flush
		if s.batches > longRun {
			flush = flush * longRunFlush / 2
		}
		if at = s.last.Add(flush); now.Before(at) {
			return noTask, earlier(at, s.wait)
		}
	}
	return appendEntry, at
}

// earlier returns the earlier one of two times. The zero time is never.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}
