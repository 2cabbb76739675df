package router

import "reflect"

// This file allocates a Context together with the message that will be decoded and with the reply of a
// call. A Context may be retained, so it cannot come from a pool.

// A messageContext is a Context with its message.
type messageContext[M Message] struct {
	_       notComparable
	context Context

	decoded M
}

// A replyContext is the Context of a call with its message and its reply.
type replyContext[M, Reply Message] struct {
	_       notComparable
	context Context

	decoded  M
	returned Reply
}

// notComparable, as a field, saves the compiler from generating the comparison of a struct type.
type notComparable [0]func()

// maxInlineBytes bounds the size of a message or a reply that is allocated with its Context. The
// Context of a call exists before ingress, so larger ones would make refused calls expensive.
const maxInlineBytes = 256

// isInline reports whether values of a type are allocated with the Context.
func isInline(t reflect.Type) bool { return t.Size() <= maxInlineBytes }

// newContext returns an empty Context.
func newContext() *Context { return new(Context) }

// A replyState says what Context.reply holds.
type replyState = uint8

const (
	noReply     replyState = iota // a pointer to where the handler's reply will be, or nil
	replyInline                   // a pointer to the handler's reply
	replySet                      // the reply
)

// placeOfReply returns a pointer to where the handler's reply will be, or nil if there is no such place
// or the reply is already set.
func (c *Context) placeOfReply() any {
	if c.call.Reply == replySet {
		return nil
	}
	return c.reply
}
