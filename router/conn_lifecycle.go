package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// maxWaitingJobs bounds the waiting jobs in each serial queue of a connection. While a queue
// is full, the connection is not read.
const maxWaitingJobs = 64

// open calls OnOpen and then starts to read messages. Reading runs on another goroutine, so
// that the stack that OnOpen has grown is freed.
func (c *Conn) open() {
	executor.Do(func() {
		var closeErr *CloseError
		refused := c.router.guard(onOpen, nil, func() error {
			err := c.router.opts.OnOpen(&c.ctx, c)
			if !failure.IsNilPointer(err) {
				closeErr, _ = failure.AsType[*CloseError](err)
			}
			return err
		})
		if refused == nil {
			go c.serve()
		} else {
			go c.refuseAfterOpen(refused, closeErr)
		}
	}, func() { go c.refuseAfterOpen(failure.Exited(onOpen), nil) })
}

// onOpen names Options.OnOpen.
const onOpen = "OnOpen"

// refuseAfterOpen closes a connection that OnOpen has refused, and reads until it is closed: with
// OnOpen's *CloseError, which may come with a limit, or with the code that Options.RefuseAfterUpgrade gives its error, or else with
// 1011.
func (c *Conn) refuseAfterOpen(refused *failure.Failure, closeErr *CloseError) {
	c.ownExtra().refused = true
	defer c.endRefused() // even if a hook does not return
	if closeErr != nil {
		c.Close(closeErr.Code, closeErr.Reason)
		refusal := Refusal{Conn: c, Code: errors.PermissionDenied, Err: closeErr}
		if refused.Limit == nil {
			c.reportRefusedOpen(refusal, nil)
			return
		}
		refusal.Code, refusal.Err = errors.ResourceExhausted, refused.Limit
		c.reportRefusedOpen(refusal, refused)
		return
	}
	visible := c.router.opts.RefuseAfterUpgrade && refused.Payload.Code != errors.Internal
	if refused.Limit != nil && !visible { // without a code of its own, a limit would look like any other error
		refused = failure.Internal(refused.Limit)
	}
	payload, code := refused.Payload, StatusInternalError
	if refused.Limit != nil {
		payload.Code = errors.ResourceExhausted // as for requests
	}
	if visible {
		code = refusalStatus(payload.Code)
	}
	c.Close(code, wire.CloseReason(&payload))
	refusal := refusalOf(refused, c, "")
	refusal.Code = payload.Code
	c.reportRefusedOpen(refusal, refused)
}

// reportRefusedOpen reports a connection that OnOpen has refused.
func (c *Conn) reportRefusedOpen(refusal Refusal, refused *failure.Failure) {
	refusal.Identity, refusal.IP, refusal.Reason = c.Identity(), c.ip, string(reasonOnOpen)
	c.router.reportRefusedConn(&c.ctx, &refusal, refused, "")
}

// endRefused reads a refused connection until it is closed, and ends it.
func (c *Conn) endRefused() {
	c.discard()
	c.unregister()
	c.release()
}

// A messageQueue is the connection as the owner of its queue of received messages.
type messageQueue Conn

// RunJob handles a message.
func (q *messageQueue) RunJob(in *incoming) {
	c := (*Conn)(q)
	executor.Do(func() {
		c.awaitSubscribers()
		c.handle(in)
	}, func() { c.endExited(in) })
}

// AfterJob writes the answers, on another goroutine if the next handler must run.
func (q *messageQueue) AfterJob(next bool) {
	if next {
		q.member.WS.Wake()
	} else {
		q.member.WS.Flush()
	}
}

// JobBytes returns how much memory a message takes.
func (q *messageQueue) JobBytes(in *incoming) int64 { return in.memory() }

// Ended returns a channel that is closed with the connection.
func (q *messageQueue) Ended() <-chan struct{} { return q.ctx.Done() }

// serve reads messages until the connection is closed, or there is nothing to read, or another
// goroutine reads. It handles each message on the same goroutine if another one can read meanwhile,
// unless Route.OwnGoroutine says otherwise. It returns true if the transport must call it again;
// see wsconn.Handler.
func (c *Conn) serve() (paused bool) {
	r := reader{Conn: c, reads: true}
	executor.Do(func() { paused = r.serve() }, func() { r.exited() })
	return paused
}

func (r *reader) serve() (paused bool) {
	c := r.Conn
	for {
		switch c.member.WS.Park() {
		case wsconn.Parked:
			return false
		case wsconn.Paused:
			return true
		}
		c.member.WS.AwaitLowWater()
		r.inline = c.member.WS.CanLend()
		msg, err := c.read()
		if err != nil {
			c.reportUnread(err)
			r.reads = false
			c.unregister()
			c.release()
			return false
		}
		if msg.Buffer == nil {
			continue
		}
		in := r.receive(msg)
		switch {
		case in == nil:
			if c.messages.TryStart() {
				c.messages.Start()
			}
		case !c.member.WS.Lend():
			c.messages.Unclaim(in)
		default:
			r.reads = false
			c.messages.RunClaimed(in)
			if !c.member.WS.Reclaim() {
				return false
			}
			r.reads = true
		}
	}
}

// discard reads and drops messages until the connection is closed.
func (c *Conn) discard() {
	for {
		msg, err := c.read()
		if err != nil {
			return
		}
		if msg.Buffer != nil {
			msg.Release()
		}
	}
}

// read reads a message. A message without a Buffer means that only control frames have
// arrived.
func (c *Conn) read() (wsconn.Message, error) {
	msg, err := c.member.WS.Read(c.maxBytesOf)
	if msg.Buffer != nil || err != nil {
		c.router.hooks.Observe(observe.Event{Kind: observe.Read, Bytes: msg.BytesRead})
	}
	return msg, err
}

// unregister follows the last read: it cancels the context, frees the transport's memory, and
// removes the connection from the registry, so that its identity does not change any more.
func (c *Conn) unregister() {
	c.ctx.Cancel(c.closeCause())
	c.member.WS.Release()
	c.router.conns.Remove(c.member.ID)
	c.stopExpiry()
	c.member.Lost()
}

// leaveTopics ends all subscriptions. It runs after the last handler, which may still ask for
// them.
func (c *Conn) leaveTopics() {
	c.router.members.LeaveAll((*memberConn)(c), rules.PrefixOf(c.ip))
}

// callOnClose calls Options.OnClose, unless OnOpen refused the connection.
func (c *Conn) callOnClose() {
	if c.extra().refused || c.router.opts.OnClose == nil {
		return
	}
	code, reason := c.member.WS.Status()
	c.router.hooks.Call(&c.ctx, "OnClose", func() { c.router.opts.OnClose(c, CloseError{StatusCode(code), reason}) })
}

// acquire adds a reference, and reports false if the last one has been released: a sender may
// run later than that.
func (c *Conn) acquire() bool {
	for {
		n := c.active.Load()
		if n == 0 || c.active.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

// release drops the reference of a reader, a message or a report. The last one ends the
// connection.
func (c *Conn) release() {
	switch c.active.Add(-1) {
	case 1:
		if c.draining.Load() != notDraining {
			c.closeAfterDrain()
		}
	case 0:
		c.calls.Stop()
		defer c.releaseSlot()
		defer c.callOnClose()
		defer c.router.conns.Forget(c)
		c.leaveTopics()
	}
}

// releaseSlot reports the end of the connection and releases its slots in the registry and its
// use of the pool, even if OnClose, an observer or the Logger does not return.
func (c *Conn) releaseSlot() {
	defer c.router.conns.Release(c.address)
	defer c.router.conns.ReleaseUser(c.Identity().user())
	defer c.messages.Config.Pool.Release()
	code, _ := c.member.WS.Status()
	c.router.hooks.Observe(observe.Event{Kind: observe.Closed, Status: code})
	c.router.log.Closed(&c.ctx, c.member.ID, code)
}
