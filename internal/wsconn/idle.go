package wsconn

// States of Conn.readState. While the connection is parked, the first call of Readable starts
// the next reader.
const (
	reading      = iota // a goroutine reads, or may call Read
	readingReady        // as reading, and since the last read something may have arrived
	parked              // no goroutine reads
)

// Park ends reading until there is something to read. Then resume is called once, on any
// goroutine; it must not block, and must let one goroutine call Park or Read again. Park
// returns false if the caller must call Read: there is something to read, or the
// connection cannot be parked.
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
		if c.readState.CompareAndSwap(reading, parked) {
			return true
		}
		c.readState.Store(reading)
	}
}

// Readable is called by the poller, and by Abort: see [netpoll.Waiter].
func (c *Conn) Readable(special bool) {
	if special {
		c.sock.special.Store(true)
	}
	if c.readState.Swap(readingReady) == parked {
		c.readState.Store(reading) // a Readable that this overwrites is not lost: the next Park reads the socket first
		c.resume()
	}
}
