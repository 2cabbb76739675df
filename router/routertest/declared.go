//go:build !js

package routertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
)

// declarations are the messages and the errors that clients of a router know.
type declarations struct {
	sent     map[string]bool                    // types of messages without a correlation ID; empty if messages are not checked
	calls    map[string]bool                    // types of calls of the server
	replies  map[string]string                  // types of the replies to calls and streams, "" if there is none, by type
	progress map[string]bool                    // types of calls and streams that send progress or items
	errors   map[string]envelope.DeclaredErrors // of calls and streams, by type
}

// declarationsOf returns nil if nothing is checked, because the handler is no router.
func declarationsOf(h http.Handler) *declarations {
	r, ok := h.(*router.Router)
	if !ok {
		return nil
	}
	d := &declarations{
		sent: map[string]bool{}, calls: map[string]bool{}, replies: map[string]string{}, progress: map[string]bool{},
		errors: map[string]envelope.DeclaredErrors{},
	}
	description := r.DescribeMessages()
	for _, route := range description.Routes {
		declared := envelope.DeclaredErrors{}
		for _, e := range route.Errors {
			declared[e.Code] = e.Details
		}
		d.errors[route.Type] = declared
	}
	if len(description.Sent) == 0 {
		return d
	}
	for _, m := range description.Sent {
		d.sent[m.Type] = true
	}
	for _, call := range description.Calls {
		d.calls[call.Type] = true
	}
	for _, route := range description.Routes {
		d.replies[route.Type] = route.Reply.Type
		d.progress[route.Type] = route.Item != nil || route.Progress != nil
		d.sent[route.Reply.Type] = true // to a call without a correlation ID
	}
	return d
}

// problem says how a message differs from the declarations, or returns "". The request is the type of the
// message that it answers, or "" if that is not known.
func (d *declarations) problem(frame Frame, request string) string {
	if frame.Type == protocol.TypeRPCError {
		return d.errorProblem(frame, request)
	}
	if len(d.sent) == 0 {
		return ""
	}
	reply, isRoute := d.replies[request]
	switch id := frame.Meta.CorrelationID; {
	case frame.Type == protocol.TypeProgress:
		if isRoute && !d.progress[request] {
			return fmt.Sprintf("progress of %s is not declared; set RouteDoc.Progress of its route", request)
		}
	case protocol.IsReserved(frame.Type):
	case strings.HasPrefix(id, protocol.AnswerPrefix):
		if !d.calls[frame.Type] {
			return fmt.Sprintf("the call %s to clients is not declared; declare it with router.DeclareCall", frame.Type)
		}
	case id == "":
		if !d.sent[frame.Type] {
			return fmt.Sprintf("the message %s is not declared; declare it with router.DeclareMessage, or in TopicOptions.Messages if it is published", frame.Type)
		}
	case isRoute && frame.Type != reply:
		return fmt.Sprintf("the reply %s to %s is not the declared one (%q); router.RPC declares the type of its reply, and RouteDoc.Reply that of a stream", frame.Type, request, reply)
	}
	return ""
}

// errorProblem says how the error that answers a request is not as its route declares, or returns "".
func (d *declarations) errorProblem(frame Frame, request string) string {
	var e struct {
		Code    errors.Code  `json:"code"`
		Details jsonv2.Value `json:"details"`
	}
	if err := jsonv2.Unmarshal(frame.Payload, &e); err != nil {
		return ""
	}
	mismatch := d.errors[request].Mismatch(e.Code, e.Details)
	if mismatch == "" {
		return ""
	}
	return fmt.Sprintf("%s; RouteDoc.Errors and RouteDoc.ErrorDetails of %s must have it", mismatch, request)
}
