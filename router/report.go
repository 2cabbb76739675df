package router

import "github.com/penstock-go/penstock/internal/wsconn"

// report tells Options.OnLimitExceeded about a limit. While too many reports
// wait, so does whoever caused them.
func (c *Conn) report(l LimitExceeded) {
	if c.router.opts.OnLimitExceeded == nil {
		return
	}
	l.Conn = c
	c.active.Add(1)
	c.reports.push(func() {
		defer c.done()
		c.router.limitExceeded(l)
	})
}

func (r *Router) limitExceeded(l LimitExceeded) {
	if r.opts.OnLimitExceeded == nil {
		return
	}
	defer r.recoverHook("OnLimitExceeded")
	l.Messages = max(l.Messages, 1)
	r.opts.OnLimitExceeded(l)
}

// owner is what a connection's transport reports to.
type owner Conn

// Ended ends the connection's context.
func (o *owner) Ended() { o.cancel() }

// Overflowed reports what a full queue dropped. Whoever sends waits for nothing,
// so what is dropped until a report gets its turn is reported together.
func (o *owner) Overflowed(over wsconn.Overflow) {
	c := (*Conn)(o)
	if over.Dropped == 0 || c.router.opts.OnLimitExceeded == nil {
		return
	}
	c.dropsMu.Lock()
	first := c.drops.Messages == 0
	c.drops = LimitExceeded{
		Kind: LimitQueue, Conn: c,
		Observed: int64(over.Queued), Limit: int64(over.Limit),
		Messages: c.drops.Messages + int64(over.Dropped),
	}
	c.dropsMu.Unlock()
	if first {
		c.active.Add(1)
		c.reports.add(c.reportDrops)
	}
}

func (c *Conn) reportDrops() {
	defer c.done()
	c.dropsMu.Lock()
	drops := c.drops
	c.drops = LimitExceeded{}
	c.dropsMu.Unlock()
	c.router.limitExceeded(drops)
}

// QueueHigh tells Options.OnQueueHigh.
func (o *owner) QueueHigh(messages, bytes int) {
	c := (*Conn)(o)
	if c.router.opts.OnQueueHigh == nil {
		return
	}
	c.active.Add(1)
	c.reports.add(func() {
		defer c.done()
		defer c.router.recoverHook("OnQueueHigh")
		c.router.opts.OnQueueHigh(c, messages, bytes)
	})
}

func runReport(report func()) { report() }
