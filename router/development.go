package router

import (
	"bytes"
	"net/http"
	"runtime"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file finds likely mistakes of the application for Options.Development, which internal/hints
// reports. Its functions may be called only if Router.hints is set, and not under a lock.

// hintHandshake explains why a request was refused.
func (r *Router) hintHandshake(req *http.Request, refused *handshakeRefusal) {
	if refused.failure.Payload.Code == errors.Canceled { // the client has gone
		return
	}
	switch refused.reason {
	case reasonOrigin:
		r.hints.Origin(req)
	case reasonHandshake:
		r.hints.Handshake(req, refused.failure)
	case reasonAuthentication:
		r.hints.Authentication(refused.failure)
	case reasonLimit:
		r.hints.Limit(string(limitOf(refused.failure).Kind))
	case reasonConnContext, reasonDraining, reasonOnOpen:
	}
}

// hintSubscription reports a topic to which no client can subscribe.
func (r *Router) hintSubscription(p *topic.Pattern, topic string) {
	if p.Text == "" {
		r.hints.NoPattern(topic)
		return
	}
	r.hints.NoAuthorize(p.Text, p.Position)
}

// endLockedGoroutine ends the goroutine, and with it the OS thread, if a handler has left it locked
// to that thread: later messages would run on a thread whose state the handler may have changed.
// Only the text of a stack says so, which takes too long to look at after every message of a server
// in production.
func (r *Router) endLockedGoroutine(route *Route) {
	stack := make([]byte, 128)
	head, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	if !bytes.Contains(head, []byte("locked to thread")) {
		return
	}
	r.hints.LockedGoroutine(route.name)
	runtime.Goexit()
}
