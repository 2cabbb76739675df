package history

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// attach begins to hand over publications: those after the current position of the store, and before
// that those that have arrived since the Sequencer exists, because its subscribers were there first.
func (s *Sequencer) attach(current broker.Position) {
	s.attached, s.last = true, current
	for offset, p := range s.buffer {
		if p.Position.Epoch == current.Epoch && offset <= s.last.Offset && current.Offset-offset < pageSize {
			s.last.Offset = offset - 1
		}
	}
	s.callAttaching()
}

// WhenAttached calls f once, with the Sequencer's lock held and the position after which publications
// will be handed over: at once if the position is known, otherwise as soon as it is. It does not call
// f if the Sequencer is closed first.
func (s *Sequencer) WhenAttached(f func(broker.Position)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached {
		f(s.last)
	} else {
		s.attaching = append(s.attaching, f)
	}
}

// callAttaching calls the functions that WhenAttached has kept. It must be called with the lock held.
func (s *Sequencer) callAttaching() {
	for _, f := range s.attaching {
		f(s.last)
	}
	s.attaching = nil
}

// awaitAttached waits until the position of the topic is known.
func (s *Sequencer) awaitAttached(ctx context.Context) error {
	return s.await(ctx, func(bool) bool { return s.attached })
}
