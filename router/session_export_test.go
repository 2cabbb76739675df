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
func (r *Router) AbsentConns() int { return r.topics.Staying() }

// AwaySessions returns the number of sessions that have been left on this node.
func (r *Router) AwaySessions() int {
	r.away.mu.Lock()
	defer r.away.mu.Unlock()
	return len(r.away.byConn)
}

// SessionOwners returns the number of connections that have a session, had it, or are claiming it.
func (r *Router) SessionOwners() (owners int) {
	r.owners.mu.Lock()
	defer r.owners.mu.Unlock()
	for _, of := range r.owners.byID {
		owners += len(of)
	}
	return owners
}
