package wsconn

import (
	"time"

	"github.com/klauspost/compress/flate"
)

// A NoopHandler ignores all events, except that a parked connection must be read.
type NoopHandler struct{ Resumed chan struct{} }

func NewNoopHandler() NoopHandler { return NoopHandler{make(chan struct{}, 1)} }

// Serve hands the right to read to the goroutine that has called Park.
func (h NoopHandler) Serve() (paused bool) {
	h.Resumed <- struct{}{}
	return false
}

func (NoopHandler) OnClosed()               {}
func (NoopHandler) OnOverflow(Overflow)     {}
func (NoopHandler) OnBackpressure(int, int) {}

// NewTestOptions returns options of tests.
func NewTestOptions() *Options {
	return &Options{
		MaxMessageBytes: 1 << 20, MessageTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, SendTimeout: time.Minute,
		CloseTimeout: 10 * time.Second, PingInterval: time.Minute, PongTimeout: time.Minute,
		BufferBytes: 16 << 10, QueueBytes: 1 << 20, QueueMessages: 1024, Engine: NewEngine(),
	}
}

// UpgradeRequest is what a client without extensions sends.
const UpgradeRequest = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// ResumedOf returns a channel that receives when a parked connection must be read.
func ResumedOf(c *Conn) <-chan struct{} {
	return c.handler.(interface{ channel() chan struct{} }).channel()
}

func (h NoopHandler) channel() chan struct{} { return h.Resumed }

// Idle reports whether a connection is parked and nothing is left to read in the kernel.
func Idle(c *Conn) bool {
	if c.readState.Load() != parked {
		return false
	}
	readable, err := c.sock.raw.Readable()
	return err == nil && !readable && c.readState.Load() == parked
}

// PingSilent pings the peer of a parked connection as if it had sent nothing for Options.PingInterval.
func PingSilent(c *Conn) {
	c.tick() // which no longer awaits the answer to an earlier ping
	c.lastSeen.Store(int64(c.sinceStart(time.Now()) - c.opts.PingInterval))
	c.tick()
}

// BlockWriter makes a connection that nothing is written to behave as if the kernel's buffer were full.
func BlockWriter(c *Conn) { c.writer.Store(writerBlocked) }

// UnblockWriter undoes BlockWriter.
func UnblockWriter(c *Conn) { c.writer.Store(writerIdle) }

// Watched reports whether an event loop watches a TLS connection.
func Watched(c *Conn) bool { return c.sock.tls() != nil }

// CountingDeflater returns a deflater with windows that can count up to as many compressions as most.
func CountingDeflater(minBytes, most int) *Deflater {
	d := &Deflater{minBytes: minBytes, writers: make(chan *flate.Writer, most)}
	d.windowBytes.Store(1 << 20)
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

// UsesWindows reports whether a connection has allocated windows.
func UsesWindows(c *Conn) bool {
	return c.windows.ToSend().Text() != nil || c.windows.ToReceive().Text() != nil
}
