package history

import "github.com/penstock-go/penstock/broker"

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
