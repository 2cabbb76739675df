package wsconn

import (
	"runtime"
	"time"
)

// A queue can be full although the peer reads: the goroutine that fills it keeps the writer from running.
// The policy for slow consumers applies only to a peer that has filled the buffer of the kernel.

// Bounds of how long a goroutine that queues a frame waits for another one that writes. It may hold locks,
// so it does not sleep.
const (
	roomWait   = 200 * time.Millisecond
	roomYields = 100_000 // if the clock stands still, in a test

	// A write that has lasted for longer, while other goroutines could run, waits for the peer. Without an
	// event loop, nothing else shows that.
	longWrite       = 50 * time.Millisecond
	longWriteYields = 1000
)

// makeRoomLocked writes what is queued until f fits or the kernel takes no more, unless f never fits.
// It must be called with the lock held, which it releases meanwhile.
func (c *Conn) makeRoomLocked(f *Frame) {
	if f.size() > c.opts.QueueBytes {
		return
	}
	var since time.Time
	for yields := 0; c.hasQueuedLocked() && c.full(f, nil) && !c.closing.Load(); yields++ {
		if c.polled && (c.writer.CompareAndSwap(writerIdle, writerRunning) || c.writer.CompareAndSwap(writerQueued, writerRunning)) {
			c.writeUnlocked()
			continue
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if c.waitsForPeerLocked(now, yields) || yields == roomYields || now.Sub(since) > roomWait {
			return
		}
		c.startWriterLocked()
		c.yield()
	}
}

// waitsForPeerLocked reports whether the writer waits until the kernel takes more, after the caller
// has yielded several times.
func (c *Conn) waitsForPeerLocked(now time.Time, yields int) bool {
	switch {
	case c.writer.Load() == writerBlocked:
		return c.sock.tls() == nil || !c.sock.raw.Writable() // TLS writes long batches on a goroutine of its own
	case c.polled || c.inFlight == nil:
		return false
	}
	// At most once in a second, so that a peer that reads a little from time to time delays others rarely.
	second := uint16(c.sinceStart(now)/time.Second) + 1
	waits := c.stalled == second || yields == roomYields || now.Sub(c.inFlight.begun) > longWrite && yields >= longWriteYields
	if waits {
		c.stalled = second
	}
	return waits
}

// yield lets other goroutines run, with the lock released.
func (c *Conn) yield() {
	c.mu.Unlock()
	defer c.mu.Lock()
	runtime.Gosched()
}

// writeUnlocked calls writeLoop with the lock released.
func (c *Conn) writeUnlocked() {
	c.mu.Unlock()
	defer c.mu.Lock()
	c.writeLoop()
}
