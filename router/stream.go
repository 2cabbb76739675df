package router

import (
	"context"
	"fmt"
	"iter"
	"reflect"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Stream registers the handler of a stream: a call that sends any number of items before its
// answer. The router runs the iterator that the handler returns, and sends each item as a progress
// message, in order and without loss. The end of the iterator is the answer: a message without
// payload, or the reply that was set with [Context.SetReply].
//
// An iterator fails by yielding an error: the client receives it as the answer, and the item that is
// yielded with it is not sent. The stream also ends with an error if the iterator is nil, or if an
// item cannot be encoded or is longer than Limits.QueueBytes.
//
// Sending an item waits like [Conn.SendWait] while the client reads slowly. A client may also give
// credits: then yield waits while all of them are used. yield returns false when the client has
// aborted the stream, at the deadline, when the connection is closed, and when Shutdown drains the
// connection. The iterator must then return, as every iterator must; an iterator that waits for
// something else must watch the [Context], which is canceled at the same time. yield also returns
// false when an item has waited for ten minutes: the answer is DEADLINE_EXCEEDED.
//
// A stream has no deadline, unless [Route.Timeout] or the client sets one. It counts for
// Limits.Concurrency until the iterator has returned. Middleware wraps the whole stream: after next
// has returned, all items are queued, and [Context.Reply] is the reply. Like that of a call, the
// handler is called concurrently, also for one connection; see [Route.Serial].
//
// Stream panics if M cannot be registered (see [Message]) or if an Item cannot be encoded.
func Stream[M Message, Item any](to Registrar, handle func(*Context, M) iter.Seq2[Item, error]) *Route {
	position := callerPosition()
	mustHaveHandler(to, handle, position)
	return registerStream(to, position, receivedTypeOf[M](), reflect.TypeFor[Item](), func(ctx *Context) error {
		return sendItems(ctx, handle(ctx, *ctx.message.(*M)))
	})
}

// registerStream adds the route of a stream, which has been registered at a position.
func registerStream(to Registrar, position string, message receivedType, item reflect.Type, run Handler) *Route {
	mustBeEncodable(to.group().router, item, position)
	return register(to, position, message, &Route{rpc: true, stream: true, concurrent: true, ownGoroutine: true, contract: routeContract{item: item}, run: run})
}

// mustBeEncodable panics unless items of a stream can be encoded in every format of the router.
func mustBeEncodable(r *Router, item reflect.Type, position string) {
	if err := envelope.CheckEncodable(item); err != nil {
		panic(fmt.Sprintf("router: %s: items of type %v cannot be encoded as JSON: %v", position, item, err))
	}
	if item.Kind() != reflect.Interface { // the types of such items are not known
		r.mustSupport(item, position)
	}
}

// errCreditWithoutID refuses a stream that could never be granted more items.
var errCreditWithoutID = &errors.Error{Code: errors.InvalidArgument, Message: "meta.credit requires meta.correlationId"}

// readCredit stores the credits with which a stream starts.
func (in *incoming) readCredit() *failure.Failure {
	switch {
	case !in.head.HasCredit:
		return nil
	case len(in.head.CorrelationID) == 0:
		return failure.Of(errCreditWithoutID).At("parse")
	}
	in.call.call.Credits = calls.NewCredits(in.head.Credit)
	return nil
}

// grantCredit handles the client's permission for n more items. The stream may have ended
// meanwhile, so an unknown ID is ignored; so are calls, and streams that started without credits.
func (c *Conn) grantCredit(id string, n int64) {
	if k := c.calls.Find(id); k != nil {
		k.Credits.Grant(n)
	}
}

// errNoIterator reports a handler of a stream that has returned nil.
var errNoIterator = errors.New("router: the iterator of the stream is nil; a stream without items needs one that yields nothing")

// sendItems runs the iterator of a stream.
func sendItems[Item any](ctx *Context, items iter.Seq2[Item, error]) error {
	if items == nil {
		return errNoIterator
	}
	for item, err := range items {
		if err != nil {
			return err
		}
		if err := ctx.ProgressWait(item); err != nil {
			return withoutClosed(err)
		}
	}
	if ctx.hasEnded() { // the end would claim that the client has all items
		return withoutClosed(ctx.endCause())
	}
	if ctx.Reply() == nil {
		ctx.SetReply(protocol.StreamEnd{})
	}
	return nil
}

// withoutClosed makes a stream whose client leaves CANCELLED, as the contexts of other calls do:
// that is no failure of the server.
func withoutClosed(err error) error {
	if errors.Is(err, wsconn.ErrClosed) {
		return context.Canceled
	}
	return err
}

// endStreams ends the open streams of a connection that is drained. Each answer has its own
// goroutine, because it waits for room in the send queue. admitCall adds a stream before it reads
// draining, and drain stores draining before endStreams looks for streams, so one of them sees the
// other.
func (c *Conn) endStreams() {
	for _, k := range c.calls.All() {
		if k.Of.route.stream {
			go c.cancelCall(k.Of, failure.Of(errDraining).At("draining"), endedByDraining)
		}
	}
}
