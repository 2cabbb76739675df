package router

import "reflect"

// This file allocates a Context together with the message that will be decoded and with the reply of a
// call. A Context may be retained, so it cannot come from a pool.

// A messageContext is a Context with its message.
type messageContext[M Message] struct {
	context Context

	decoded M
}

// A replyContext is the Context of a call with its message and its reply.
type replyContext[M, Reply Message] struct {
	context Context

	decoded  M
	returned Reply
}

// maxJoinedBytes bounds the size of a message or a reply that is allocated with its Context. The
// Context of a call exists before ingress, so larger ones would make rejected calls expensive.
const maxJoinedBytes = 256

// isJoined reports whether values of a type are allocated with the Context.
func isJoined[M Message]() bool { return reflect.TypeFor[M]().Size() <= maxJoinedBytes }

// newMessageContext returns a Context for a message without a reply of a known type.
func newMessageContext[M Message]() *Context {
	c := new(messageContext[M])
	c.context.message = &c.decoded
	return &c.context
}

// newReplyContext returns a Context for a call.
func newReplyContext[M, Reply Message]() *Context {
	c := new(replyContext[M, Reply])
	c.context.message = &c.decoded
	c.context.reply, _ = any(&c.returned).(Message) // fails for a pointer type, which needs no place
	return &c.context
}

// newContext returns an empty Context.
func newContext() *Context { return new(Context) }

// A replyState says what Context.reply holds.
type replyState uint8

const (
	noReply     replyState = iota // a pointer to where the handler's reply will be, or nil
	replyJoined                   // a pointer to the handler's reply
	replySet                      // the reply
)

// setReturned stores the reply that a handler has returned.
func setReturned[Reply Message](c *Context, reply Reply) {
	if place, ok := any(c.reply).(*Reply); ok && c.call.replyState != replySet {
		*place, c.call.replyState = reply, replyJoined
		return
	}
	c.SetReply(reply)
}

// returnedReply returns a copy of the reply that setReturned has stored.
func returnedReply[Reply Message](place Message) Message { return *any(place).(*Reply) }
