package wsconn

// HandlerOf returns the handler of a connection.
func HandlerOf(c *Conn) Handler { return c.handler }

// Idle reports whether a connection is parked and nothing is left to read in the kernel.
func Idle(c *Conn) bool {
	if c.readState.Load() != parked {
		return false
	}
	readable, err := c.sock.raw.Readable()
	return err == nil && !readable && c.readState.Load() == parked
}

// BlockWriter makes a connection that nothing is written to behave as if the kernel's buffer were full.
func BlockWriter(c *Conn) { c.writer.Store(writerBlocked) }

// UnblockWriter undoes BlockWriter.
func UnblockWriter(c *Conn) { c.writer.Store(writerIdle) }

// Watched reports whether an event loop watches a TLS connection.
func Watched(c *Conn) bool { return c.sock.tls() != nil }
