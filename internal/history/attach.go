package history

import (
	"context"

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

// awaitAttached waits until the position of the topic is known, and all that was published before that
// has been handed over.
func (s *Sequencer) awaitAttached(ctx context.Context) error {
	return s.await(ctx, func(bool) bool { return s.attached && s.last.Offset >= s.since })
}
