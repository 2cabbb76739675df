package router

import (
	"sync"

	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// reports are what the hooks about limits are still to be told of a connection. Most
// connections never have any.
type reports struct {
	executor.SerialQueue[func()]

	mu    sync.Mutex
	drops LimitExceeded // that are not reported yet, if Messages is not 0
}

func (c *Conn) reports() *reports {
	if r := c.reportQueue.Load(); r != nil {
		return r
	}
	r := &reports{SerialQueue: executor.SerialQueue[func()]{Run: runReport, MaxWaiting: maxWaitingJobs, Pool: c.messages.Pool}}
	r.Init()
	if c.reportQueue.CompareAndSwap(nil, r) {
		return r
	}
	return c.reportQueue.Load()
}

func runReport(report func()) { report() }

// report tells Options.OnLimitExceeded about a limit. While too many reports
// wait, so does whoever caused them.
func (c *Conn) report(l LimitExceeded) {
	if c.router.opts.OnLimitExceeded == nil {
		return
	}
	c.active.Add(1)
	c.reports().EnqueueWait(func() {
		defer c.release()
		c.router.limitExceeded(l)
	})
}

func (r *Router) limitExceeded(l LimitExceeded) {
	if r.opts.OnLimitExceeded == nil {
		return
	}
	l.Messages = max(l.Messages, 1)
	r.hook("OnLimitExceeded", func() { r.opts.OnLimitExceeded(l) })
}

// awaitReports waits until another report would not have to.
func (c *Conn) awaitReports() {
	if r := c.reportQueue.Load(); r != nil {
		r.AwaitRoom()
	}
}

// owner is what a connection's transport reports to.
type owner Conn

// OnClosed ends the connection's context.
func (o *owner) OnClosed() { o.cancel() }

// OnOverflow reports what a full queue dropped. Whoever sends waits for nothing,
// so what is dropped until a report gets its turn is reported together.
func (o *owner) OnOverflow(over wsconn.Overflow) {
	c := (*Conn)(o)
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

func (c *Conn) reportDrops() {
	defer c.release()
	r := c.reports()
	r.mu.Lock()
	drops := r.drops
	r.drops = LimitExceeded{}
	r.mu.Unlock()
	c.router.limitExceeded(drops)
}

// OnBackpressure tells Options.OnBackpressure.
func (o *owner) OnBackpressure(messages, bytes int) {
	c := (*Conn)(o)
	if c.router.opts.OnBackpressure == nil || !c.acquire() {
		return
	}
	c.reports().EnqueueNow(func() {
		defer c.release()
		c.router.hook("OnBackpressure", func() { c.router.opts.OnBackpressure(c, messages, bytes) })
	})
}

// OnWrite tells observers.
func (o *owner) OnWrite(w wsconn.Write) {
	o.router.observe(Event{Kind: EventWritten, Count: w.Frames, Bytes: w.Bytes, Duration: w.Waited})
}
