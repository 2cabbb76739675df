package router

import (
	"fmt"
	"reflect"

	"github.com/penstock-go/penstock/internal/declared"
)

// This file declares for [Router.Describe] what routes do not say: the messages that the server sends.
// Declarations change nothing in how the router works.

// DeclareMessage declares that the server sends messages of type M to clients, for example with
// [Conn.Send] or [Router.SendToUser]. The contract that [Router.Describe] returns has them, and
// nothing else depends on it. Replies are known from the routes, and publications from
// TopicOptions.Messages.
//
// It panics if M cannot be registered (see [Message]), if another Go type with the same MessageType
// is declared, or if the router has begun to serve.
func DeclareMessage[M Message](r *Router) {
	r.mustNotBeServing("DeclareMessage")
	r.declared.AddSent(mustDeclare(reflect.TypeFor[M](), callerPosition()))
}

// DeclareCall declares that the server calls clients with messages of type M, which they answer
// with a Reply; see [Call]. The contract that [Router.Describe] returns has these calls, and
// nothing else depends on it. It panics as [DeclareMessage] does.
func DeclareCall[M, Reply Message](r *Router) {
	r.mustNotBeServing("DeclareCall")
	r.declareCall(reflect.TypeFor[M](), reflect.TypeFor[Reply](), callerPosition())
}

func (r *Router) declareCall(request, reply reflect.Type, position string) {
	r.declared.AddCall(declared.Call{Message: mustDeclare(request, position), Reply: mustDeclare(reply, position)})
}

// mustDeclare returns the declaration of a message.
func mustDeclare(typ reflect.Type, position string) declared.Message {
	name := mustBeMessage(typ, position)
	return declared.Message{Name: name, Type: typ, Position: position}
}

// declarePublications declares the messages of TopicOptions.Messages.
func (r *Router) declarePublications(messages []Message, pattern, position string) {
	for i, m := range messages {
		if m == nil {
			panic(fmt.Sprintf("router: TopicOptions.Messages[%d] of %s is nil; it must be a message", i, pattern))
		}
		r.declared.AddSent(mustDeclare(reflect.TypeOf(m), position))
	}
}
