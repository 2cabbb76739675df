package router

import (
	"fmt"
	"reflect"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
)

// A routeContract is what [Router.Describe] says about a route and the pipeline does not need.
type routeContract struct {
	documented bool // by Doc
	text       string
	request    reflect.Type
	reply      reflect.Type // nil for events, and for streams without a declared reply
	replyType  string       // "" if reply is nil
	item       reflect.Type // nil unless the route is a stream
	progress   reflect.Type // nil without Progress
	errors     envelope.DeclaredErrors
}

// A RouteDoc documents a route for people and tools that write clients. The contract that
// [Router.Describe] returns has it. Tests with package routertest fail if the route does something
// else, and Options.Development logs that; nothing else depends on it.
type RouteDoc struct {
	// Description explains the messages.
	Description string

	// Errors are codes that the handler and its middleware return, in addition to the standard ones
	// ([errors.Codes]), with which any message may be answered. If a route declares any, here or in
	// ErrorDetails, it must declare all.
	Errors []errors.Code

	// ErrorDetails are such codes with a value of the Go type of their Error.Details: a struct or a map,
	// because they are a JSON object. A standard code with which the router itself answers, or a client
	// library ends a call, has no details of a route.
	ErrorDetails map[errors.Code]any

	// Progress is a value of the Go type of the updates that the handler of a call sends with
	// [Context.Progress].
	Progress any

	// Reply is a value of the Go type that the handler of a stream passes to [Context.SetReply].
	Reply Message
}

// Doc documents the route. It panics if it is called twice, if Progress is set and the messages are not
// calls, if Reply is set and the messages are not streams, if a value cannot be encoded, or if
// ErrorDetails has a code whose details are not those of a route.
func (rt *Route) Doc(doc RouteDoc) *Route {
	rt.parent.router.mustNotBeServing("Doc")
	if rt.contract.documented {
		panic(fmt.Sprintf("router: Doc of %q is called twice; it replaces nothing, so one call must have everything", rt.name))
	}
	rt.contract.documented, rt.contract.text = true, doc.Description
	rt.contract.errors = rt.documentedErrors(doc)
	if doc.Progress != nil {
		if !rt.rpc || rt.stream {
			panic(fmt.Sprintf("router: RouteDoc.Progress of %q is %T; only calls send progress", rt.name, doc.Progress))
		}
		rt.contract.progress = rt.mustEncode("Progress", doc.Progress)
	}
	if doc.Reply != nil {
		if !rt.stream {
			panic(fmt.Sprintf("router: RouteDoc.Reply of %q is %T; only streams document a reply, RPC has that of a call", rt.name, doc.Reply))
		}
		rt.contract.reply = reflect.TypeOf(doc.Reply)
		rt.contract.replyType = mustBeMessage(rt.contract.reply, callerPosition())
	}
	return rt
}

// documentedErrors returns the codes with the types of their details.
func (rt *Route) documentedErrors(doc RouteDoc) envelope.DeclaredErrors {
	declared := envelope.DeclaredErrors{}
	for _, code := range doc.Errors {
		declared[code] = nil
	}
	for code, details := range doc.ErrorDetails {
		if err := declared.Add(code, reflect.TypeOf(details)); err != nil {
			panic(fmt.Sprintf("router: RouteDoc.ErrorDetails[%q] of %q: %v", code, rt.name, err))
		}
	}
	return declared
}

// mustEncode returns the type of a value in a field of RouteDoc, and panics if it cannot be encoded.
func (rt *Route) mustEncode(field string, value any) reflect.Type {
	typ := reflect.TypeOf(value)
	if err := envelope.CheckEncodable(typ); err != nil {
		panic(fmt.Sprintf("router: RouteDoc.%s of %q: %v cannot be encoded as JSON: %v", field, rt.name, typ, err))
	}
	return typ
}
