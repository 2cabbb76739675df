package router

import "reflect"

// The compiler compiles a generic function anew for nearly every message type, in each package that
// registers messages. So On, RPC and Stream consist of the functions in this file, which need the type
// itself, and of calls of other functions, which receive it as a receivedType or a replyType. The
// functions in this file are not inlined, because that would compile their closures again for each
// caller, and no received message passes them.

// A receivedType is a type M of messages that are received.
type receivedType struct {
	reflect.Type
	newContext func() *Context           // with room for a message
	value      func(message any) Message // dereferences a *M
}

// receivedTypeOf returns M.
//
//go:noinline
func receivedTypeOf[M Message]() receivedType {
	return receivedType{
		Type: reflect.TypeFor[M](),
		newContext: func() *Context {
			c := new(messageContext[M])
			c.context.message = &c.decoded
			return &c.context
		},
		value: func(message any) Message { return *message.(*M) },
	}
}

// A replyType is a type of replies to calls of type M.
type replyType struct {
	reflect.Type
	newContext func() *Context             // with room for a message and for a reply
	returned   func(place Message) Message // dereferences a *Reply
}

// replyTypeOf returns Reply.
//
//go:noinline
func replyTypeOf[M, Reply Message]() replyType {
	return replyType{
		Type: reflect.TypeFor[Reply](),
		newContext: func() *Context {
			c := new(replyContext[M, Reply])
			c.context.message = &c.decoded
			c.context.reply, _ = any(&c.returned).(Message) // fails for a pointer type, which needs no place
			return &c.context
		},
		returned: func(place Message) Message { return *any(place).(*Reply) },
	}
}

// callHandler returns the Handler of a call.
//
//go:noinline
func callHandler[M, Reply Message](handle func(*Context, M) (Reply, error)) Handler {
	return func(ctx *Context) error {
		reply, err := handle(ctx, *ctx.message.(*M))
		if err != nil {
			return err
		}
		root := ctx.root()
		if place, ok := root.placeOfReply().(*Reply); ok {
			*place, root.call.Reply = reply, replyInline
		} else {
			ctx.SetReply(reply)
		}
		return nil
	}
}
