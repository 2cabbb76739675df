package router

import (
	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// transport is what the connections have in common.
func transportOptions(o *Options) wsconn.Options {
	l, t := o.Limits, o.Timeouts
	opts := wsconn.Options{
		MaxMessageBytes: l.MaxReadBytes,
		MessageTimeout:  t.Message,
		WriteTimeout:    t.Write,
		CloseTimeout:    t.Close,
		PingInterval:    t.Ping,
		PongTimeout:     t.Pong,
		BufferBytes:     o.BufferBytes,
		QueueBytes:      l.QueueBytes,
		QueueMessages:   l.QueueMessages,
		SlowConsumer:    wsconn.SlowConsumerPolicy(o.SlowConsumer),
		Poller:          new(netpoll.Poller),
	}
	if o.CompressMinBytes > 0 {
		opts.Deflater = wsconn.NewDeflater(o.CompressMinBytes)
	}
	return opts
}

// owner is what a connection's transport reports to.
type transportHandler Conn

// OnClosed ends the connection's context.
func (h *transportHandler) OnClosed() { h.cancel() }

// OnOverflow reports what a full queue dropped. Whoever sends waits for nothing,
// so what is dropped until a report gets its turn is reported together.
func (h *transportHandler) OnOverflow(over wsconn.Overflow) {
	c := (*Conn)(h)
	if over.Dropped == 0 {
		return
	}
	c.router.observe(Event{Kind: EventDropped, Policy: c.router.opts.SlowConsumer, Count: over.Dropped})
	if c.router.opts.OnLimitExceeded == nil {
		return
	}
	r := c.reports()
	r.mu.Lock()
	first := r.drops.Messages == 0
	r.drops = LimitExceeded{
		Kind: LimitQueue, Conn: c,
		Observed: int64(over.Queued), Limit: int64(over.Limit),
		Messages: r.drops.Messages + int64(over.Dropped),
	}
	r.mu.Unlock()
	if first && c.acquire() {
		r.EnqueueNow(c.reportDrops)
	}
}

// OnBackpressure tells Options.OnBackpressure.
func (h *transportHandler) OnBackpressure(messages, bytes int) {
	c := (*Conn)(h)
	if c.router.opts.OnBackpressure == nil || !c.acquire() {
		return
	}
	c.reports().EnqueueNow(func() {
		defer c.release()
		c.router.hook("OnBackpressure", func() { c.router.opts.OnBackpressure(c, messages, bytes) })
	})
}

// OnWrite tells observers.
func (h *transportHandler) OnWrite(w wsconn.Write) {
	h.router.observe(Event{Kind: EventWritten, Count: w.Frames, Bytes: w.Bytes, Duration: w.Waited})
}
