package wsconn

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// States of Conn.readState, which says which goroutine has the right to read. Read and
// everything that belongs to the reading goroutine require that right.
const (
	reading      = iota // a goroutine has the right
	readingReady        // as reading, and since the last read something may have arrived
	waiting             // as reading, and the goroutine waits for the loop's signal
	lent                // the goroutine runs a handler; any other one may take the right
	parked              // no goroutine has the right; the loop takes it when something arrives
	returning           // as reading, until the goroutine has asked the loop to report again
	returned            // no goroutine has the right; the loop takes it at the next event
)

// ParkResult is what Park has done.
type ParkResult uint8

// The results of Park.
const (
	Busy   ParkResult = iota // the caller must call Read: there is something to read, or the connection cannot be parked
	Parked                   // Handler.Serve is called when there is something to read, or after other connections
	Paused                   // Handler.Serve must return true, and is called again after other connections
)

// Park ends reading until there is something to read, or pauses it after BufferBytes have been
// read, so that no client keeps the others waiting. The caller loses the right to read, unless Park
// returns Busy.
func (c *Conn) Park() ParkResult {
	if !c.polled {
		return Busy
	}
	s := &c.sock
	for {
		if c.frames.failed = c.readControls(); c.frames.failed != nil {
			return Busy
		}
		if s.chunk != nil {
			// Reading a message to its end may read more of the next ones.
			if header, _ := wholeFrame(s.unread()); header == 0 && c.mustPause() {
				return c.pause()
			}
			return Busy
		}
		if t := s.tls(); t != nil && s.readsThisTurn > 0 {
			filled, err := c.drainTLS(t)
			if err != nil {
				return Busy // as below
			}
			if filled {
				continue
			}
		}
		if !s.kernelEmpty {
			if c.mustPause() {
				return c.pause()
			}
			filled, err := c.tryFill()
			if err != nil {
				return Busy // the next read returns the error again
			}
			if filled {
				continue
			}
		}
		s.kernelEmpty = false
		if c.readState.CompareAndSwap(reading, parked) {
			return Parked
		}
		c.readState.Store(reading)
	}
}

// mustPause reports whether BufferBytes have been read and there may be more.
func (c *Conn) mustPause() bool { return !c.sock.kernelEmpty && c.sock.readsThisTurn > 0 }

// pause ends reading although there may be more to read. A goroutine that does not run an event loop
// returns the connection to its loop: if it read on, the loop would be run only when the scheduler
// preempts that goroutine.
func (c *Conn) pause() ParkResult {
	if c.served.Load() {
		return Paused
	}
	for {
		c.readState.Store(returning) // a signal that this overwrites is not lost: the loop reports again
		if !c.sock.raw.ReportAgain() {
			c.readState.Store(reading)
			return Busy // the next read returns the error
		}
		if c.readState.CompareAndSwap(returning, returned) {
			return Parked
		} // otherwise the loop has reported already
	}
}

// CanLend reports whether Lend is likely to return true.
func (c *Conn) CanLend() bool { return c.polled && c.served.Load() }

// Lend lets another goroutine read while the caller, which has the right to read, runs a handler. That
// goroutine is the one that takes over the event loop if the handler blocks, or the one that handles
// the next event. Lend returns false if there is no such goroutine. Otherwise Reclaim must follow.
func (c *Conn) Lend() bool {
	if !c.CanLend() {
		return false
	}
	for !c.readState.CompareAndSwap(reading, lent) { // it is readingReady
		c.sock.kernelEmpty = false
		c.readState.Store(reading)
	}
	// TakenOver clears served before it looks at readState, so either it has seen lent, or served is
	// clear here.
	return c.served.Load() || !c.readState.CompareAndSwap(lent, reading)
}

// Reclaim reports whether the caller has the right to read again, which Lend has given up. If not,
// another goroutine reads.
func (c *Conn) Reclaim() bool { return c.readState.CompareAndSwap(lent, reading) }

// Ready implements [netpoll.Waiter].
func (c *Conn) Ready(events netpoll.Events, t netpoll.Turn) (again bool) {
	if events&netpoll.HangupOrUrgent != 0 {
		c.sock.hangupOrUrgent.Store(true)
	}
	if events&netpoll.Writable != 0 {
		c.signalWritable()
	}
	if (events&netpoll.Readable != 0 || c.readState.Load() >= returning) && c.signalReadable() {
		if conn := c.sock.tls(); conn != nil {
			conn.reported = events&netpoll.Readable != 0
		}
		return c.serve(t)
	}
	return false
}

// Continue implements [netpoll.Waiter].
func (c *Conn) Continue(t netpoll.Turn) (again bool) { return c.serve(t) }

// TakenOver implements [netpoll.Waiter]. It writes what the blocked handler has queued, and reads
// what follows the message of that handler: an abort, for example, or the answer that it waits for.
func (c *Conn) TakenOver(t netpoll.Turn) (again bool) {
	c.served.Store(false)
	c.Flush()
	if c.readState.CompareAndSwap(lent, reading) {
		return c.serve(t)
	}
	return false
}

// serve calls Handler.Serve and writes what has been queued meanwhile. The caller must have the
// right to read.
func (c *Conn) serve(t netpoll.Turn) (paused bool) {
	c.sock.readsThisTurn = 0
	c.served.Store(true)
	if !t.Owned() { // looked at after served is set, which TakenOver clears
		c.served.Store(false)
		c.Flush()
	}
	paused = c.handler.Serve()
	c.served.Store(false)
	c.Flush()
	return paused
}

// signalReadable notes that something may have arrived, and reports whether the caller has got the
// right to read.
func (c *Conn) signalReadable() bool {
	switch c.readState.Swap(readingReady) {
	case parked, lent, returned:
		c.sock.kernelEmpty = false
		c.readState.Store(reading) // a signal that this overwrites is not lost: the next Park reads the socket first
		return true
	case waiting:
		c.waits.readable <- struct{}{}
	}
	return false
}

// awaitReadable waits until something may have arrived, but not longer than until deadline, unless
// that is the zero Time: then it returns os.ErrDeadlineExceeded.
func (c *Conn) awaitReadable(deadline time.Time) error {
	return await(&c.readState, c.prepareWait().readable, deadline)
}

// await waits for a signal, unless there was one since the last wait. state is a readState in which
// the caller has the right to read, or a writeState.
func await(state *atomic.Int32, signal <-chan struct{}, deadline time.Time) error {
	if !state.CompareAndSwap(reading, waiting) {
		state.Store(reading)
		return nil
	}
	expired, stop := after(deadline)
	defer stop()
	select {
	case <-signal:
	case <-expired:
		if state.CompareAndSwap(waiting, reading) {
			return os.ErrDeadlineExceeded
		}
		<-signal
	}
	state.Store(reading)
	return nil
}

// A waits is what goroutines wait for. It stays once a goroutine has waited.
type waits struct {
	readable  chan struct{} // receives once while Conn.readState is waiting
	writable  chan struct{} // receives once while Conn.writeState is writeWaiting
	progress  chan struct{} // closed when the writer has taken or written something; nil if nothing waits for that; guarded by Conn.mu
	producers turns         // of QueueTurn
	answers   turns         // of QueueAnswer
}

// prepareWait returns the connection's waits, which it creates if necessary.
func (c *Conn) prepareWait() *waits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitsLocked()
}

// waitsLocked is prepareWait with the lock held.
func (c *Conn) waitsLocked() *waits {
	if c.waits == nil {
		c.waits = &waits{
			readable:  make(chan struct{}, 1),
			writable:  make(chan struct{}, 1),
			producers: newTurns(),
			answers:   newTurns(),
		}
	}
	return c.waits
}

// States of Conn.writeState, with the values of those of Conn.readState.
const (
	writeIdle    = reading
	writeReady   = readingReady // since the last wait there may have been room
	writeWaiting = waiting      // a goroutine waits for the loop's signal
)

// signalWritable notes that there may be room to write.
func (c *Conn) signalWritable() {
	if c.writeState.Swap(writeReady) == writeWaiting {
		c.waits.writable <- struct{}{}
	}
}

// awaitWritable waits until there may be room to write, but not longer than until deadline: then it
// returns os.ErrDeadlineExceeded. It is for the writing goroutine.
func (c *Conn) awaitWritable(deadline time.Time) error {
	return await(&c.writeState, c.prepareWait().writable, deadline)
}

// after returns a channel that receives at a time, or nil for the zero Time, and a function that
// must be called afterwards.
func after(t time.Time) (<-chan time.Time, func() bool) {
	if t.IsZero() {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, timer.Stop
}

// interrupt wakes the goroutines that wait for the socket, and lets the connection be read if it is
// parked.
func (c *Conn) interrupt() {
	if !c.polled {
		return
	}
	c.sock.hangupOrUrgent.Store(true)
	c.signalWritable()
	if c.signalReadable() {
		c.ServeElsewhere()
	}
}

// ServeElsewhere lets another goroutine, which is not that of an event loop, call Handler.Serve. The
// caller loses the right to read.
func (c *Conn) ServeElsewhere() {
	go func() {
		for c.serve(netpoll.Turn{}) {
		}
	}()
}
