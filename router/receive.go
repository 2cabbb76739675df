package router

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file runs stages 1 to 5 of the pipeline, which need no payload: size, head, ingress,
// route and concurrency. They run on the goroutine that reads the connection. Stages 6 and 7
// are in handle.go.

// An incoming is a received message between the goroutine that reads it and the one that
// handles it. It comes from a pool, and its current goroutine owns it.
type incoming struct {
	wsconn.Message

	head  wire.Head
	route *Route // nil if the type is not registered
}

var incomingPool = sync.Pool{New: func() any { return new(incoming) }}

// release returns the message and its buffer to their pools.
func (in *incoming) release() {
	in.Release()
	*in = incoming{}
	incomingPool.Put(in)
}

// maxBytesOf returns the size limit of a message from its first bytes. The transport keeps
// only a little more than that of the message.
func (r *Router) maxBytesOf(prefix []byte) int64 {
	head, _ := wire.ParseHeadPrefix(prefix)
	if route := r.routes[string(head.Type)]; route != nil {
		return route.maxBytes
	}
	return r.opts.Limits.MaxMessageBytes
}

// receive runs stages 1 to 5.
func (c *Conn) receive(msg wsconn.Message) {
	in := incomingPool.Get().(*incoming)
	in.Message = msg
	c.active.Add(1) // before admit reads draining; see Conn.drain
	var failed *inspectedError
	defer func() {
		if failed != nil {
			c.rejectReceived(in, failed)
		}
	}()
	headErr := in.readHead(c.router.routes)
	c.runIngress(in, &failed)
	failed = c.admit(in, headErr, failed)
}

// rejectReceived rejects a message on the reading goroutine. If application code has called
// runtime.Goexit, this goroutine ends, and another one continues to read.
func (c *Conn) rejectReceived(in *incoming, failed *inspectedError) {
	exits := true
	defer func() {
		c.ws.Wake()
		in.release()
		c.release()
		if exits {
			go c.serve()
		}
	}()
	c.rejectMessage(in, failed)
	exits = failed.exited
}

// admit decides about a message after ingress. It returns the rejection, which may be that of
// ingress. If it returns nil, the message has been queued or answered.
func (c *Conn) admit(in *incoming, headErr error, ingress *inspectedError) *inspectedError {
	limit := c.router.opts.Limits.MaxMessageBytes
	if in.route != nil {
		limit = in.route.maxBytes
	}
	switch {
	case in.Size > limit:
		return limitError(LimitExceeded{Kind: LimitPayload, Observed: in.Size, Limit: limit, RetryAfter: errors.Never})
	case ingress != nil:
		return ingress
	case headErr != nil:
		return inspect(invalid(headErr), "")
	case c.draining.Load():
		return inspect(errDraining, "")
	case in.heartbeat():
		c.acknowledgeHeartbeat(in)
		return nil
	case in.route == nil:
		return inspect(errors.Errorf(errors.Unimplemented, "no handler for this type"), "")
	}
	return c.enqueue(in)
}

// errDraining rejects messages and requests during Shutdown.
var errDraining = &errors.Error{Code: errors.Unavailable, Message: "server is restarting"}

// acknowledgeHeartbeat answers a heartbeat, which has no further stages.
func (c *Conn) acknowledgeHeartbeat(in *incoming) {
	_ = c.queueWait(encodeHeartbeatAck(in.At))
	c.ws.Wake()
	c.recordCompleted(wire.TypeHeartbeat, "")
	in.release()
	c.release()
}

// readHead is stage 2: it parses the type and the correlation ID, and finds the route.
func (in *incoming) readHead(routes map[string]*Route) (err error) {
	if in.Truncated() {
		in.head, err = wire.ParseHeadPrefix(in.Bytes)
	} else {
		in.head, err = wire.ParseHead(in.Bytes)
	}
	if err != nil {
		in.head.Type = nil // a malformed message has no type
		return err
	}
	in.route = routes[string(in.head.Type)]
	return nil
}

// memory returns how many bytes a waiting message holds.
func (in *incoming) memory() int64 { return int64(len(in.Bytes)) }

// heartbeat reports whether the message is a heartbeat of the protocol.
func (in *incoming) heartbeat() bool { return string(in.head.Type) == wire.TypeHeartbeat }

// typ returns the message's type if it is registered or defined by the protocol, and otherwise
// "": a client must not choose limiter keys, metric labels or log fields.
func (in *incoming) typ() string {
	switch {
	case in.route != nil:
		return in.route.name
	case in.heartbeat():
		return wire.TypeHeartbeat
	default:
		return ""
	}
}

// correlationID returns the identifier by which the client matches an answer, or "".
func (in *incoming) correlationID() string {
	in.head.FindMeta(in.Bytes)
	return string(in.head.CorrelationID)
}

// runIngress is stage 3. Messages without a route pass the router's own functions.
func (c *Conn) runIngress(in *incoming, failed **inspectedError) {
	c.router.guard(failed, "ingress", in.route, func() error {
		fns := c.router.unknownIngress
		if in.route != nil {
			fns = in.route.ingress
		}
		ctx := c.ingressContext(in.typ(), in.Size, in.At)
		for _, fn := range fns {
			if err := fn(c.ctx, ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// ingressContext returns the argument of ingress functions for a message.
func (c *Conn) ingressContext(typ string, size int64, at time.Time) IngressContext {
	return IngressContext{Type: typ, ConnID: c.id, IP: c.ip, Identity: c.Identity(), Size: size, ReceivedAt: at}
}

// enqueue is stage 5. It adds the message to the connection's serial queue.
func (c *Conn) enqueue(in *incoming) *inspectedError {
	if !in.route.rpc {
		c.messages.Enqueue(in, time.Time{})
		return nil
	}
	limit := int64(c.router.opts.Limits.Concurrency)
	if n := c.inFlight.Add(1); n > limit {
		c.inFlight.Add(-1)
		return limitError(LimitExceeded{Kind: LimitConcurrency, Observed: n, Limit: limit})
	}
	c.router.observe(Event{Kind: EventStarted, Type: in.route.name})
	if !c.enqueueCall(in) {
		c.finishCall(in.route)
		return inspect(errDeadline, "")
	}
	return nil
}
