package router

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// bufferBytes is the maximum size of one read or write of a socket.
const bufferBytes = 16 << 10

// sendTimeout bounds how long a client may grant a stream no credit, or make no room for a message that waits.
const sendTimeout = 10 * time.Minute

// maxCloseTime bounds the time from sending a close frame to receiving the client's.
const maxCloseTime = 5 * time.Second

// transportOptions returns the options that all connections of a router share.
func transportOptions(o *Options, inbound *executor.ByteBudget) wsconn.Options {
	l, t := o.Limits, o.Timeouts
	opts := wsconn.Options{
		MessageTimeout: t.Message,
		WriteTimeout:   t.Message,
		SendTimeout:    sendTimeout,
		CloseTimeout:   min(t.Pong, maxCloseTime),
		PingInterval:   t.Ping,
		PongTimeout:    t.Pong,
		Budget:         inbound,
		BufferBytes:    bufferBytes,
		QueueBytes:     l.QueueBytes,
		QueueMessages:  l.QueueMessages,
		SlowConsumer:   wsconn.SlowConsumerPolicy(o.SlowConsumer),
		Reason:         transportReason,
		Engine:         wsconn.NewEngine(),
	}
	if o.CompressMinBytes > 0 {
		opts.Deflater = wsconn.NewDeflater(o.CompressMinBytes, o.CompressWindowBytes)
	}
	return opts
}

// mustFitWindows panics if compression is off, or there is no room for the windows of one connection.
func mustFitWindows(windowBytes int64, minBytes int) {
	switch {
	case windowBytes == 0:
	case windowBytes < deflate.MemoryBytes:
		panic(fmt.Sprintf("router: CompressWindowBytes is %d; it is for all connections together, and each of them takes %d", windowBytes, deflate.MemoryBytes))
	case minBytes == 0:
		panic("router: CompressWindowBytes has no effect without CompressMinBytes, which enables compression")
	}
}

// minReadBytes is the smallest size above which a message closes its connection. A shorter one that its type does not
// permit is answered with an error.
const minReadBytes = 1 << 20

// maxReadBytes returns the size above which a message closes its connection: no type permits more.
func (r *Router) maxReadBytes() int64 {
	r.build()
	return r.transport.MaxMessageBytes
}

// A transportHandler is the connection's wsconn.Handler. Its methods except Serve run on goroutines
// of senders and of the writer, so they queue what calls application code, except observers.
type transportHandler Conn

// Serve reads and handles messages.
func (h *transportHandler) Serve() (paused bool) { return (*Conn)(h).serve() }

// OnClosed cancels the connection's context.
func (h *transportHandler) OnClosed() { h.ctx.Cancel((*Conn)(h).closeCause()) }

// OnOverflow queues a report of the messages that a full send queue has dropped. Senders must
// not wait, so drops that occur before the report runs are added to it.
func (h *transportHandler) OnOverflow(over wsconn.Overflow) {
	c := (*Conn)(h)
	if over.Conflated > 0 {
		c.router.hooks.Observe(observe.Event{Kind: observe.Conflated, Count: over.Conflated})
	}
	if over.Dropped == 0 {
		return
	}
	c.router.hooks.Observe(observe.Event{Kind: observe.Dropped, Policy: SlowConsumerPolicy(over.Policy).String(), Limit: over.Option, Count: over.Dropped})
	if c.router.opts.OnLimitExceeded == nil {
		return
	}
	r := c.reports()
	r.mu.Lock()
	first := r.drops.Messages == 0
	r.drops = LimitExceeded{
		Kind: LimitQueue, Conn: c, Option: over.Option,
		Observed: int64(over.Queued), Limit: int64(over.Limit),
		Messages: r.drops.Messages + int64(over.Dropped),
	}
	r.mu.Unlock()
	if first && c.acquire() {
		r.EnqueueNow(c.reportDrops)
	}
}

// OnBackpressure queues a call of Options.OnBackpressure.
func (h *transportHandler) OnBackpressure(messages, bytes int) {
	c := (*Conn)(h)
	if c.router.opts.OnBackpressure == nil || !c.acquire() {
		return
	}
	c.reports().EnqueueNow(func() {
		defer c.release()
		c.router.hooks.Call(&c.ctx, "OnBackpressure", func() { c.router.opts.OnBackpressure(c, messages, bytes) })
	})
}

// observeWrite reports a write to observers.
func (r *Router) observeWrite(w wsconn.Write) {
	r.hooks.Observe(observe.Event{Kind: observe.Written, Count: w.Frames, Bytes: w.Bytes, Duration: w.Waited})
}
