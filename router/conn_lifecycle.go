package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// maxWaitingJobs bounds the waiting jobs in each serial queue of a connection. While a queue
// is full, the connection is not read.
const maxWaitingJobs = 64

// open calls OnOpen and then starts to read messages. Reading runs on another goroutine, so
// that the stack that OnOpen has grown is freed.
func (c *Conn) open() {
	var failed *inspectedError
	var closeErr *CloseError
	defer func() {
		if failed != nil {
			go c.rejectAfterOpen(failed, closeErr)
		} else {
			go c.serve()
		}
	}()
	if c.router.opts.OnOpen == nil {
		return
	}
	c.router.guard(&failed, "OnOpen", nil, func() error {
		err := c.router.opts.OnOpen(c.ctx, c)
		if !failure.IsNilPointer(err) {
			closeErr, _ = failure.AsType[*CloseError](err)
		}
		return err
	})
}

// rejectAfterOpen closes a connection that OnOpen has rejected, and reads until it is closed.
func (c *Conn) rejectAfterOpen(failed *inspectedError, closeErr *CloseError) {
	c.rejected = true
	defer c.release()
	defer c.unregister()
	defer c.discard()
	c.closeRejected(failed, closeErr)
}

// closeRejected closes a rejected connection: with OnOpen's *CloseError, or with the code that
// Options.RejectAfterUpgrade gives its error, or else with 1011.
func (c *Conn) closeRejected(failed *inspectedError, closeErr *CloseError) {
	if closeErr != nil {
		defer c.Close(closeErr.Code, closeErr.Reason)
		c.recordOnOpenRejection(Rejection{Conn: c, Code: errors.PermissionDenied, Err: closeErr})
		return
	}
	visible := c.router.opts.RejectAfterUpgrade && failed.payload.Code != errors.Internal
	if failed.limited && !visible { // without a code of its own, a limit would look like any other error
		failed = internalError(&failed.limit)
	}
	payload, code := failed.payload, StatusInternalError
	if failed.limited {
		payload.Code = errors.ResourceExhausted // as for requests
	}
	if visible {
		code = rejectionStatus(payload.Code)
	}
	defer c.Close(code, wire.CloseReason(&payload))
	if failed.limited {
		defer c.router.recordLimitRejection(failed.limit)
	} else {
		defer c.router.reportError(c, "", failed)
	}
	rejection := failed.rejection(c, "")
	rejection.Code = payload.Code
	c.recordOnOpenRejection(rejection)
}

// recordOnOpenRejection reports a connection that OnOpen has rejected.
func (c *Conn) recordOnOpenRejection(rejection Rejection) {
	rejection.Identity, rejection.IP, rejection.Reason = c.Identity(), c.ip, string(reasonOnOpen)
	c.router.recordRejection(&rejection, "")
}

// A messageQueue is the connection as the owner of its queue of received messages.
type messageQueue Conn

// RunJob handles a message.
func (q *messageQueue) RunJob(in *incoming) {
	(*Conn)(q).awaitSubscribers()
	(*Conn)(q).handle(in)
}

// AfterJob writes the answers, on another goroutine if the next handler must run.
func (q *messageQueue) AfterJob(next bool) {
	if next {
		q.sub.WS.Wake()
	} else {
		q.sub.WS.Flush()
	}
}

// JobBytes returns how much memory a message takes.
func (q *messageQueue) JobBytes(in *incoming) int64 { return in.memory() }

// Ended returns a channel that is closed with the connection.
func (q *messageQueue) Ended() <-chan struct{} { return q.ctx.Done() }

// serve reads messages until the connection is closed, or there is nothing to read, or another
// goroutine reads. It handles each message on the same goroutine if another one can read
// meanwhile, unless Route.OwnGoroutine says otherwise. It returns true if the transport must call it again; see wsconn.Handler.
func (c *Conn) serve() (paused bool) {
	for {
		switch c.sub.WS.Park() {
		case wsconn.Parked:
			return false
		case wsconn.Paused:
			return true
		}
		c.sub.WS.AwaitLowWater()
		c.inline = c.sub.WS.CanLend()
		msg, err := c.read()
		if err != nil {
			c.unregister()
			c.release()
			return false
		}
		if msg.Buffer == nil {
			continue
		}
		c.receive(msg)
		in := c.claimed
		c.claimed = nil
		switch {
		case in == nil:
			if c.messages.TryStart() {
				c.messages.Start()
			}
		case !c.sub.WS.Lend():
			c.messages.Unclaim(in)
		default:
			c.messages.RunClaimed(in)
			if !c.sub.WS.Reclaim() {
				return false
			}
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
	msg, err := c.sub.WS.Read(c.maxBytesOf)
	if msg.Buffer != nil || err != nil {
		c.router.observe(Event{Kind: EventRead, Bytes: msg.BytesRead})
	}
	return msg, err
}

// unregister follows the last read: it cancels the context, frees the transport's memory, and
// removes the connection from the registry, so that its identity does not change any more.
func (c *Conn) unregister() {
	c.cancel(c.closeCause())
	c.sub.WS.Release()
	c.router.conns.remove(c)
	c.stopExpiry()
	c.endSession()
}

// leaveTopics ends all subscriptions. It runs after the last handler, which may still ask for
// them.
func (c *Conn) leaveTopics() {
	c.mu.Lock()
	topics := c.sub.TakeTopicsLocked()
	c.left = true
	c.mu.Unlock()
	r := c.router
	for _, t := range topics {
		if !r.stayPresent(c, t) {
			r.topics.Remove(t, &c.sub, !c.goesOn(t.Name))
		}
	}
	r.away.endIfUnused(c)
}

// callOnClose calls Options.OnClose, unless OnOpen rejected the connection.
func (c *Conn) callOnClose() {
	if c.rejected || c.router.opts.OnClose == nil {
		return
	}
	code, reason := c.sub.WS.Status()
	c.router.hook("OnClose", func() { c.router.opts.OnClose(c, CloseError{StatusCode(code), reason}) })
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
		c.stopDeadlines()
		defer c.releaseSlot()
		defer c.callOnClose()
		c.leaveTopics()
	}
}

// releaseSlot reports the end of the connection and releases its slots in the registry and its
// use of the pool, even if OnClose, an observer or the Logger calls runtime.Goexit.
func (c *Conn) releaseSlot() {
	defer c.router.conns.releaseAddress(c.address)
	defer c.router.conns.releaseUser(c.Identity())
	defer c.messages.Config.Pool.Release()
	code, _ := c.sub.WS.Status()
	c.router.observe(Event{Kind: EventClosed, Status: StatusCode(code)})
	c.router.logClosed(c, StatusCode(code))
}
