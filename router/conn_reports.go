package router

import (
	"sync"

	"github.com/penstock-go/penstock/internal/executor"
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
		c.router.callOnLimitExceeded(l)
	})
}

func (r *Router) callOnLimitExceeded(l LimitExceeded) {
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

func (c *Conn) reportDrops() {
	defer c.release()
	r := c.reports()
	r.mu.Lock()
	drops := r.drops
	r.drops = LimitExceeded{}
	r.mu.Unlock()
	c.router.callOnLimitExceeded(drops)
}
