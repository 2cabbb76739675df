package wsconn

// Who may read: the goroutine that has called Read, or, while the connection is parked,
// whoever learns first that there is something to read.
const (
	reading      = iota
	readingReady // reading, and since then something may have arrived
	parked
)

// Park gives up reading until there is something to read. Then it calls resume, which
// must not block, and after which reading goes on. It returns false if it has not given
// up, because there is something to read, or because a connection of this kind has to
// wait in Read.
func (c *Conn) Park(resume func()) bool {
	if !c.polled {
		return false
	}
	s := &c.sock
	c.resume = resume
	for {
		if c.frames.failed = c.readControls(); c.frames.failed != nil || len(s.unread) > 0 {
			return false
		}
		if !s.emptied {
			filled, err := s.tryFill()
			if err != nil {
				return false
			}
			if filled {
				continue
			}
		}
		s.emptied = false
		if c.turn.CompareAndSwap(reading, parked) {
			return true
		}
		c.turn.Store(reading)
	}
}

// Readable is called by the poller, and when the connection has been closed: see
// [netpoll.Waiter].
func (c *Conn) Readable(special bool) {
	if special {
		c.sock.special.Store(true)
	}
	if c.turn.Swap(readingReady) == parked {
		c.turn.Store(reading) // Park looks at the socket again before it gives up
		c.resume()
	}
}
