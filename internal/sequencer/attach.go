package sequencer

import (
	"context"
	"slices"

	"github.com/penstock-go/penstock/broker"
)

// attach begins to hand over publications: those after the current position of the store, and before
// that those that have arrived since the Sequencer exists, because its subscribers were there first.
func (s *Sequencer) attach(current broker.Position) {
	s.attached, s.last, s.since = true, current, current.Offset
	for offset := range s.buffer {
		if s.isBuffered(offset) && offset <= s.last.Offset && current.Offset-offset < maxBufferedBytes/bufferedOverhead {
			s.last.Offset = offset - 1
		}
	}
	s.callAttachingLocked()
}

// An attachment is a call of WhenAttached that waits.
type attachment struct {
	after  broker.Position // of the newest publication that precedes the call, as far as this node knows
	wanted func() bool
	f      func(broker.Position)
}

// minForgotten is how many attachments may be unwanted before they are forgotten; as many as are wanted may be, too.
const minForgotten = 8

// WhenAttached calls f once, with the Sequencer's lock held and the position after which publications
// will be handed over: at once if the position is known and nothing that is older than the call has still
// to be handed over, otherwise as soon as that is so. It does not call f if the Sequencer is closed first. It
// forgets f when wanted returns false, which is called with the lock held: those who give up while the store is
// away do not stay in memory.
func (s *Sequencer) WhenAttached(wanted func() bool, f func(broker.Position)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := attachment{broker.Position{Epoch: s.last.Epoch, Offset: s.since}, wanted, f}
	for _, p := range s.buffer {
		if p.Position.Offset > a.after.Offset {
			a.after = p.Position
		}
	}
	if len(s.attaching) >= s.forgetAt {
		s.attaching = slices.DeleteFunc(s.attaching, func(a attachment) bool { return !a.wanted() })
		s.forgetAt = 2*len(s.attaching) + minForgotten
	}
	s.attaching = append(s.attaching, a)
	s.callAttachingLocked()
}

// callAttachingLocked calls the functions that WhenAttached has kept, if their time has come.
func (s *Sequencer) callAttachingLocked() {
	if !s.attached || len(s.attaching) == 0 {
		return
	}
	s.attaching = slices.DeleteFunc(s.attaching, func(a attachment) bool {
		if a.after.Epoch == s.last.Epoch && a.after.Offset > s.last.Offset {
			return false
		}
		a.f(s.last)
		return true
	})
}

// AwaitAttached waits until the position of the topic is known, and all that was published before that
// has been handed over. The position is read from the store, so what is published afterwards, on any node, follows
// it. The error is the cause of ctx, or ErrClosed.
func (s *Sequencer) AwaitAttached(ctx context.Context) error {
	return s.await(ctx, func(bool) bool { return s.attached && s.last.Offset >= s.since })
}
