package router

import (
	"fmt"
	"reflect"

	"github.com/penstock-go/penstock/errors"
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

// A routeContract is what [Router.Describe] says about a route and the pipeline does not need.
type routeContract struct {
	text      string
	request   reflect.Type
	reply     reflect.Type                 // nil for events, and for streams without a declared reply
	replyType string                       // "" if reply is nil
	item      reflect.Type                 // nil unless the route is a stream
	progress  reflect.Type                 // nil without Progress
	errors    map[errors.Code]reflect.Type // with the type of their details, or nil
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

// Description explains messages of this type to people who write clients. The contract that
// [Router.Describe] returns has it.
func (rt *Route) Description(text string) *Route {
	rt.parent.router.mustNotBeServing("Description")
	rt.contract.text = text
	return rt
}

// Errors declares codes that the handler returns, in addition to those that any message may be answered
// with. The contract that [Router.Describe] returns has them. The handler may return others.
func (rt *Route) Errors(codes ...errors.Code) *Route {
	rt.parent.router.mustNotBeServing("Errors")
	for _, code := range codes {
		rt.declareError(code, rt.contract.errors[code])
	}
	return rt
}

// ErrorDetails declares a code as [Route.Errors] does, and that its Error.Details have the members of a Go type. The
// router does not compare them. ErrorDetails panics if details is not encoded as a JSON object: it is a struct or a map.
func (rt *Route) ErrorDetails(code errors.Code, details any) *Route {
	rt.parent.router.mustNotBeServing("ErrorDetails")
	typ := reflect.TypeOf(details)
	if typ == nil || typ.Kind() != reflect.Struct && typ.Kind() != reflect.Map {
		panic(fmt.Sprintf("router: ErrorDetails of %q with %v; it must be a struct or a map, because details are a JSON object", rt.name, typ))
	}
	if err := checkEncodable(typ, map[reflect.Type]bool{}); err != nil {
		panic(fmt.Sprintf("router: ErrorDetails of %q: %v cannot be encoded as JSON: %v", rt.name, typ, err))
	}
	rt.declareError(code, typ)
	return rt
}

func (rt *Route) declareError(code errors.Code, details reflect.Type) {
	if rt.contract.errors == nil {
		rt.contract.errors = map[errors.Code]reflect.Type{}
	}
	rt.contract.errors[code] = details
}

// Progress declares that the handler of a call sends updates of the same Go type with
// [Context.Progress]. The contract that [Router.Describe] returns has the type. Progress panics if the
// messages are not calls, or if an update cannot be encoded.
func (rt *Route) Progress(update any) *Route {
	rt.parent.router.mustNotBeServing("Progress")
	typ := reflect.TypeOf(update)
	if !rt.rpc || rt.stream || typ == nil {
		panic(fmt.Sprintf("router: Progress of %q with %v; only calls send progress, and it must not be nil", rt.name, typ))
	}
	if err := checkEncodable(typ, map[reflect.Type]bool{}); err != nil {
		panic(fmt.Sprintf("router: Progress of %q: %v cannot be encoded as JSON: %v", rt.name, typ, err))
	}
	rt.contract.progress = typ
	return rt
}

// Reply declares that the handler of a stream sets replies of the same Go type with
// [Context.SetReply]. The contract that [Router.Describe] returns has the type. Reply panics if the
// messages are not streams, or if the reply cannot be registered: see [Message].
func (rt *Route) Reply(m Message) *Route {
	rt.parent.router.mustNotBeServing("Reply")
	if !rt.stream || m == nil {
		panic(fmt.Sprintf("router: Reply of %q with %T; only streams declare a reply, and it must not be nil", rt.name, m))
	}
	rt.contract.reply = reflect.TypeOf(m)
	rt.contract.replyType, _ = mustBeMessage(rt.contract.reply, callerPosition())
	return rt
}
