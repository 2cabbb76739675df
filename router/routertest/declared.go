//go:build !js

package routertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/router"
)

// declarations are the messages that clients of a router know.
type declarations struct {
	sent     map[string]bool   // types of messages without a correlation ID
	calls    map[string]bool   // types of calls of the server
	replies  map[string]string // types of the replies to calls and streams, "" if there is none, by type
	progress map[string]bool   // types of calls and streams that send progress or items
}

// declarationsOf returns nil if nothing is checked: the handler is no router, or the router declares no
// message.
func declarationsOf(h http.Handler) *declarations {
	r, ok := h.(*router.Router)
	if !ok {
		return nil
	}
	description := r.DescribeMessages()
	if len(description.Sent) == 0 {
		return nil
	}
	d := &declarations{sent: map[string]bool{}, calls: map[string]bool{}, replies: map[string]string{}, progress: map[string]bool{}}
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
	reply, isRoute := d.replies[request]
	switch id := frame.Meta.CorrelationID; {
	case frame.Type == protocol.TypeProgress:
		if isRoute && !d.progress[request] {
			return fmt.Sprintf("progress of %s is not declared; call Progress on its route", request)
		}
	case protocol.IsReserved(frame.Type):
	case strings.HasPrefix(id, protocol.AnswerPrefix):
		if !d.calls[frame.Type] {
			return fmt.Sprintf("the call %s to clients is not declared; declare it with router.Calls", frame.Type)
		}
	case id == "":
		if !d.sent[frame.Type] {
			return fmt.Sprintf("the message %s is not declared; declare it with router.Sends, or in TopicOptions.Messages if it is published", frame.Type)
		}
	case isRoute && frame.Type != reply:
		return fmt.Sprintf("the reply %s to %s is not the declared one (%q); RPC declares the type of its reply, and Reply on its route that of a stream", frame.Type, request, reply)
	}
	return ""
}
