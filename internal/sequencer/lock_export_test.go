package sequencer

// WithLock calls f while nothing is handed over: to remove a subscriber, for example.
func (s *Sequencer) WithLock(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
