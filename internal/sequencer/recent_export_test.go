package sequencer

// RecentBytes returns how many bytes are kept for clients that return.
func (r *Reader) RecentBytes() int64 { return r.recentBytes.Load() }
