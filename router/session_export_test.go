package router

// AbsentConns returns the number of closed connections with which users stay present.
func (r *Router) AbsentConns() int { return r.topics.Staying() }

// AwaySessions returns the number of sessions that have been left on this node.
func (r *Router) AwaySessions() int {
	_, waiting := r.sessions.Len()
	return waiting
}

// SessionOwners returns the number of connections that have a session, had it, or are claiming it.
func (r *Router) SessionOwners() int {
	all, _ := r.sessions.Len()
	return all
}
