package router

import (
	"fmt"
	"reflect"
)

// This file declares for [Router.Describe] what routes do not say: the messages that the server sends.
// Declarations change nothing in how the router works.

// declarations are what the application declares for [Router.Describe]. The router's routesMu guards
// the maps, which are nil until the first declaration.
type declarations struct {
	sent  map[string]declaredMessage // by type
	calls map[string]declaredCall    // by type
}

// A declaredMessage is a message that clients receive.
type declaredMessage struct {
	typ      reflect.Type
	position string // file:line of the declaration
}

// A declaredCall is a call that clients answer.
type declaredCall struct {
	request  declaredMessage
	reply    reflect.Type
	replyTyp string
}

// DeclareMessage declares that the server sends messages of type M to clients, for example with [Conn.Send] or
// [Router.SendToUser]. The contract that [Router.Describe] returns has them, and nothing else depends
// on it. Replies are known from the routes, and publications from TopicOptions.Messages.
//
// It panics if M cannot be registered (see [Message]), if another Go type with the same MessageType
// is declared, or if the router has begun to serve.
func DeclareMessage[M Message](r *Router) {
	r.mustNotBeServing("DeclareMessage")
	r.declareSent(reflect.TypeFor[M](), callerPosition())
}

// DeclareCall declares that the server calls clients with messages of type M, which they answer with a Reply;
// see [Call]. The contract that [Router.Describe] returns has these calls, and nothing else depends on
// it. It panics as [DeclareMessage] does.
func DeclareCall[M, Reply Message](r *Router) {
	r.mustNotBeServing("DeclareCall")
	r.declareCall(reflect.TypeFor[M](), reflect.TypeFor[Reply](), callerPosition())
}

// declareCall records a message that clients answer.
func (r *Router) declareCall(request, reply reflect.Type, position string) {
	name, _ := mustBeMessage(request, position)
	replyType, _ := mustBeMessage(reply, position)
	call := declaredCall{declaredMessage{request, position}, reply, replyType}
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	if other, ok := r.declared.calls[name]; ok && (other.request.typ != call.request.typ || other.reply != call.reply) {
		panic(fmt.Sprintf("router: the call %q is declared as %v with the reply %v at %s, and as %v with the reply %v at %s; a type can have only one meaning",
			name, other.request.typ, other.reply, other.request.position, call.request.typ, call.reply, position))
	}
	if r.declared.calls == nil {
		r.declared.calls = map[string]declaredCall{}
	}
	r.declared.calls[name] = call
}

// declareSent records a message that clients receive.
func (r *Router) declareSent(typ reflect.Type, position string) {
	name, _ := mustBeMessage(typ, position)
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	if other, ok := r.declared.sent[name]; ok && other.typ != typ {
		panic(fmt.Sprintf("router: %q is declared as %v at %s, and as %v at %s; a type can have only one meaning",
			name, other.typ, other.position, typ, position))
	}
	if r.declared.sent == nil {
		r.declared.sent = map[string]declaredMessage{}
	}
	r.declared.sent[name] = declaredMessage{typ, position}
}

// declarePublications records the messages of TopicOptions.Messages.
func (r *Router) declarePublications(messages []Message, pattern, position string) {
	for i, m := range messages {
		if m == nil {
			panic(fmt.Sprintf("router: TopicOptions.Messages[%d] of %s is nil; it must be a message", i, pattern))
		}
		r.declareSent(reflect.TypeOf(m), position)
	}
}
