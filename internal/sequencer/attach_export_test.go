package sequencer

// Attaching returns how many calls of WhenAttached wait.
func (s *Sequencer) Attaching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.attaching)
}
