package ask

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/report"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/tracing"
)

// This file has the calls of a router to clients of any node. They return pointers to replies.

// Call calls a client of this node.
func (n *Node) Call(ctx context.Context, client Client, m envelope.Message, typ ReplyType) (reply any, err error) {
	call := n.startCall(ctx, m)
	defer func() {
		call.report(err)
		call.end(err)
	}()
	d, err := n.decoderOf(typ)
	if err != nil {
		return nil, err
	}
	c := client.Called()
	answer, err := n.call(call.ctx, &c, m, call.start)
	if err != nil {
		return nil, err
	}
	return d.answer(&c, answer)
}

// CallConn calls the client of another node with the ID of its connection.
func (n *Node) CallConn(ctx context.Context, connID string, m envelope.Message, typ ReplyType) (reply any, err error) {
	call := n.startCall(ctx, m)
	defer func() {
		call.report(err)
		call.end(err)
	}()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	d, err := n.decoderOf(typ)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(call.ctx, n.config.Timeout, errNoReply)
	defer cancel()
	encoded, err := n.encode(ctx, m)
	if err != nil {
		return nil, err
	}
	o := n.askConn(ctx, connID, encoded)
	return d.outcome(&o)
}

// A Reply is that of one client, or the error of a node.
type Reply struct {
	Node   string
	ConnID string // "" for an error of the node
	Reply  any    // nil after an error
	Err    error
}

// askConn calls the client of another node with the ID of its connection. ctx must have a
// deadline.
func (n *Node) askConn(ctx context.Context, connID string, m *Message) Outcome {
	a, nodes, all, err := n.begin(false, func(node string) bool { return hashNode(node).isIn(connID) })
	if err != nil {
		return Outcome{Err: err}
	}
	defer a.end()
	if len(nodes) == 0 && !all && !n.hash.isIn(connID) { // one of this node has been closed
		return Outcome{Err: errNodesUnknown}
	}
	for _, node := range nodes {
		packet := appendAsk(appendString([]byte{connAsk}, connID), a.number, timeUntilEnd(ctx), m)
		if err := n.publish(node, packet); err != nil {
			a.endNode(node, err)
		}
	}
	found := Outcome{Err: errNoConn}
	for o := range a.awaitOutcomes(ctx) {
		if found = *o; o.ConnID != "" {
			break
		}
	}
	return found
}

// timeUntilEnd returns the time until the deadline of a context that has one.
func timeUntilEnd(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

// CallUser calls the clients of a user on all nodes, and iterates over their replies in the order in which they arrive.
// The error of what has neither a connection nor a node prevents all calls, or says that there may be other nodes.
func (n *Node) CallUser(ctx context.Context, tenantID, userID string, m envelope.Message, typ ReplyType) iter.Seq[Reply] {
	return func(yield func(Reply) bool) {
		call := n.startCall(ctx, m)
		var last error
		defer func() { call.end(last) }()
		receive := func(r Reply) bool {
			call.report(r.Err)
			last = r.Err
			return yield(r)
		}
		d, err := n.decoderOf(typ)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			receive(Reply{Err: err})
			return
		}
		ctx, cancel := context.WithTimeoutCause(call.ctx, n.config.Timeout, errNoReply)
		defer cancel()
		a, nodes, all, err := n.begin(false, everyNode)
		if err != nil {
			receive(Reply{Err: err})
			return
		}
		defer a.end()
		if !all && !receive(Reply{Err: errNodesUnknown}) {
			return
		}
		if len(nodes) > 0 {
			encoded, err := n.encode(ctx, m)
			a.askAll(nodes, tenantID, userID, timeUntilEnd(ctx), encoded, err)
		}
		a.callOwn(ctx, n.config.ByUser(tenantID, userID), m)
		for o := range a.awaitOutcomes(ctx) {
			reply, err := d.outcome(o)
			if !receive(Reply{o.Node, o.ConnID, reply, err}) {
				return
			}
		}
	}
}

// callOwn calls clients of this node.
func (a *ask) callOwn(ctx context.Context, own Clients, m envelope.Message) {
	if own.Total > maxCalled {
		a.addOwnError(tooMany(own.Total))
		return
	}
	a.listOwn(connsOf(own.First), own.Total)
	for i, c := range own.First {
		go func() { a.addOwn(uint64(i)+1, a.node.outcomeOf(ctx, c, m)) }()
	}
}

// A clientCall is a call to one client, or to those of a user, for observers and the Tracer.
type clientCall struct {
	node   *Node
	typ    string // "" if the message has none
	start  time.Time
	ctx    context.Context //nolint:containedctx // of one call
	traced bool
}

// startCall starts the span of a call. The caller must end it.
func (n *Node) startCall(ctx context.Context, m envelope.Message) clientCall {
	call := clientCall{node: n, start: time.Now(), ctx: ctx}
	call.typ, _ = envelope.MessageType(m) // with an error, it is not sent
	if spans := n.config.Spans; spans.IsOn() {
		call.ctx, call.traced = spans.Start(ctx, tracing.Operation{Kind: tracing.ClientCall, Type: call.typ, At: call.start})
	}
	return call
}

// report reports the outcome of the call to observers.
func (call *clientCall) report(err error) {
	call.node.config.Observe(observe.Event{Kind: observe.ClientCall, Type: call.typ, Code: codeOf(err), Duration: time.Since(call.start)})
}

// end ends the span of the call.
func (call *clientCall) end(err error) {
	if call.traced {
		call.node.config.Spans.End(call.ctx, tracing.Result{Code: codeOf(err)})
	}
}

// codeOf returns the code of the error that ends a call to a client. Codes that clients may have invented are
// report.OtherCode.
func codeOf(err error) errors.Code {
	switch e := err.(type) { //nolint:errorlint // the tree of a context's cause may be anything
	case nil:
		return ""
	case *Limit:
		return errors.ResourceExhausted
	case *errors.Error:
		if e == nil || !e.Code.IsStandard() {
			return report.OtherCode
		}
		return e.Code
	}
	if err == context.DeadlineExceeded { //nolint:errorlint // as above
		return errors.DeadlineExceeded
	}
	return errors.Canceled
}
