package wsconn

import "github.com/klauspost/compress/flate"

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

// CountingDeflater returns a deflater that can count up to as many compressions as most.
func CountingDeflater(minBytes, most int) *Deflater {
	d := &Deflater{minBytes: minBytes, writers: make(chan *flate.Writer, most)}
	for range most {
		d.writers <- nil
	}
	d.count.Store(int32(most))
	return d
}

// Compressions returns how many messages a CountingDeflater has compressed. Its compressors are a
// queue, so each compression takes an element that is still nil, and leaves a compressor.
func Compressions(d *Deflater) (n int) {
	for range cap(d.writers) {
		w := <-d.writers
		if w != nil {
			n++
		}
		d.writers <- w
	}
	return n
}
