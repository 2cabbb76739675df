package router

// SessionGeneration returns the generation of a connection's session, or 0 if it has none.
func SessionGeneration(c *Conn) uint64 {
	s := c.session()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Generation
}

// AbsentConns returns the number of closed connections with which users stay present.
func (r *Router) AbsentConns() int {
	r.grace.mu.Lock()
	defer r.grace.mu.Unlock()
	return len(r.grace.byConn)
}
