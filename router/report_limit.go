package router

import (
	"context"
	"sync"

	"github.com/penstock-go/penstock/internal/executor"
)

// reports is the queue of a connection's calls of OnLimitExceeded and OnBackpressure. Most
// connections never have one.
type reports struct {
	executor.SerialQueue[func()]

	mu    sync.Mutex
	drops LimitExceeded // not reported yet, unless Messages is 0
}

// reports returns the connection's queue, and creates it on the first use.
func (c *Conn) reports() *reports {
	if r := c.extra().reportQueue.Load(); r != nil {
		return r
	}
	config := &executor.Config{MaxWaiting: maxWaitingJobs, Pool: c.messages.Config.Pool}
	r := &reports{SerialQueue: executor.SerialQueue[func()]{Owner: executor.Funcs{}, Config: config}}
	extra := c.ownExtra()
	if extra.reportQueue.CompareAndSwap(nil, r) {
		return r
	}
	return extra.reportQueue.Load()
}

// reportLimit queues a call of Options.OnLimitExceeded. While the queue is full, it waits, and with
// it the goroutine that reads the connection or handles its message.
func (c *Conn) reportLimit(ctx context.Context, typ string, l LimitExceeded) {
	if c.router.opts.OnLimitExceeded == nil {
		return
	}
	l.Conn, l.Type = c, typ
	c.active.Add(1)
	c.reports().EnqueueWait(func() {
		defer c.release()
		c.router.callOnLimitExceeded(ctx, l)
	})
}

// callOnLimitExceeded calls the hook, if there is one.
func (r *Router) callOnLimitExceeded(ctx context.Context, l LimitExceeded) {
	if r.opts.OnLimitExceeded == nil {
		return
	}
	l.Messages = max(l.Messages, 1)
	r.hooks.Call(ctx, "OnLimitExceeded", func() { r.opts.OnLimitExceeded(l) })
}

// reportDrops reports the messages that have been dropped since the previous report.
func (c *Conn) reportDrops() {
	defer c.release()
	r := c.reports()
	r.mu.Lock()
	drops := r.drops
	r.drops = LimitExceeded{}
	r.mu.Unlock()
	c.router.callOnLimitExceeded(&c.ctx, drops)
}
