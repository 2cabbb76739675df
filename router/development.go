package router

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file reports likely mistakes of the application for Options.Development.

// maxHints bounds the causes that are reported, because clients choose names of topics and origins.
const maxHints = 1000

// hints are the causes that have been reported.
type hints struct {
	mu   sync.Mutex
	seen map[hint]bool
}

// A hint is a likely mistake of the application: what was observed, and of what.
type hint struct{ text, subject string }

// hint logs a likely mistake with its remedy, unless it has been logged before. The key names the
// subject. It must not be called under a lock, because the Logger may call the router, nor unless
// Options.Development is set.
func (r *Router) hint(h hint, key, remedy string) { r.logHint(slog.LevelWarn, h, key, remedy) }

// hintContract is hint for a message of a type that is not as contracts say. It is an error if the application declares what it
// sends, because clients then rely on a contract that is wrong.
func (r *Router) hintContract(h hint, remedy string) {
	level := slog.LevelWarn
	if r.declared.SendsAny() {
		level = slog.LevelError
	}
	r.logHint(level, h, "type", remedy)
}

func (r *Router) logHint(level slog.Level, h hint, key, remedy string) {
	if !r.hints.add(h) {
		return
	}
	attrs := append(boundAttrs([]slog.Attr{slog.String(key, h.subject)}), slog.String("remedy", printable(failure.Shorten(remedy, maxLoggedErrorBytes))))
	r.opts.Logger.LogAttrs(context.Background(), level, h.text, attrs...)
}

// add reports whether a hint has not been added before.
func (s *hints) add(h hint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[h] || len(s.seen) >= maxHints {
		return false
	}
	if s.seen == nil {
		s.seen = map[hint]bool{}
	}
	s.seen[h] = true
	return true
}

// hintHandshake explains why a request was refused.
func (r *Router) hintHandshake(req *http.Request, refused *handshakeRefusal) {
	failure := refused.failure
	if failure.Payload.Code == errors.Canceled { // the client has gone
		return
	}
	switch refused.reason {
	case reasonOrigin:
		r.hint(hint{"handshake refused: the page is of another origin", req.Header.Get("Origin")}, "origin", originRemedy(req))
	case reasonHandshake:
		r.hint(hint{"handshake refused: " + handshakeFault(req, failure), req.Method + " " + req.Proto}, "request", handshakeRemedy(req, failure))
	case reasonAuthentication:
		r.hint(hint{"handshake refused: Options.Authenticate returned an error", failure.Describe()}, "error",
			"if the client should be admitted, see where it sends its credentials, and whether Authenticate reads them there: router.Token finds a token in the header, the subprotocol or the query")
	case reasonLimit:
		r.hint(hint{"handshake refused: a limit is exceeded", string(limitOf(failure).Kind)}, "limit",
			"if the clients are not at fault, raise Options.Limits, or configure Options.TrustedProxies if all of them have the address of a proxy")
	case reasonConnContext, reasonDraining, reasonOnOpen:
	}
}

// originRemedy says how a page of another origin may connect.
func originRemedy(req *http.Request) string {
	origin := req.Header.Get("Origin")
	switch {
	case len(req.Header.Values("Origin")) > 1:
		return "the request has several Origin headers; a proxy must pass on the one of the browser"
	case !strings.Contains(origin, "://"):
		return "the page has no origin of its own: load it from a server, not from a file, and not in a sandboxed frame"
	}
	return fmt.Sprintf("Options.Origins must contain %q", origin)
}

// handshakeFault says why a request is not a valid handshake.
func handshakeFault(req *http.Request, failure *failure.Failure) string {
	switch {
	case failure.Payload.Code == errors.Unimplemented:
		return "the connection cannot be taken over"
	case !isUpgrade(req):
		return "the request does not ask for a WebSocket"
	default:
		return failure.Payload.Message
	}
}

// handshakeRemedy says how a request becomes a valid handshake.
func handshakeRemedy(req *http.Request, failure *failure.Failure) string {
	switch {
	case failure.Payload.Code == errors.Unimplemented:
		return "middleware around the router must pass on http.Hijacker, or have a method Unwrap; HTTP/2 has no WebSockets here"
	case !isUpgrade(req):
		return `connect with a WebSocket client, such as new WebSocket("ws://host/path"); a proxy must pass on the headers Connection and Upgrade`
	default:
		return "the client must follow RFC 6455, section 4.1"
	}
}

// isUpgrade reports whether a request asks for a WebSocket.
func isUpgrade(req *http.Request) bool {
	return req.Method == http.MethodGet && strings.EqualFold(req.Header.Get("Upgrade"), "websocket")
}

// hintSubscription reports a topic to which no client can subscribe.
func (r *Router) hintSubscription(p *topic.Pattern, topic string) {
	if p.Text == "" {
		r.hint(hint{"subscription refused: no pattern matches the topic", topic}, "topic",
			fmt.Sprintf("router.Topic(r, %q, &router.TopicOptions{Authorize: …}), or a pattern that matches it, such as \"room/{id}\"", topic))
		return
	}
	r.hint(hint{"subscription refused: the pattern has no Authorize", p.Text}, "topic",
		"set TopicOptions.Authorize of the pattern registered at "+p.Position+", or subscribe the client in a handler")
}

// hintSent reports a message that the server sends and no contract contains.
func (r *Router) hintSent(m Message) {
	if m == nil || protocol.IsMessage(m) {
		return
	}
	typ, err := envelope.MessageType(m)
	if err != nil || r.declared.Sends(typ) {
		return
	}
	r.hintContract(hint{"message sent that is not declared", typ},
		fmt.Sprintf("router.DeclareMessage[%v](r), or TopicOptions.Messages if it is published, so that contracts and generated clients have it", reflect.TypeOf(m)))
}

// hintReply reports a reply that differs from the one in the contract.
func (c *Context) hintReply() {
	reply, route := c.Reply(), c.route
	if reply == nil || protocol.IsMessage(reply) {
		return
	}
	typ, err := envelope.MessageType(reply)
	switch {
	case err != nil || typ == route.contract.replyType:
	case route.contract.reply == nil:
		c.conn.router.hintContract(hint{"reply sent that is not declared", route.name},
			fmt.Sprintf("set RouteDoc.Reply of the stream to %T{}, so that contracts and generated clients have it", reply))
	default:
		c.conn.router.hintContract(hint{"reply sent that differs from the declared one", route.name},
			fmt.Sprintf("the contract says %v, the reply is a %T: SetReply must set the declared type", route.contract.reply, reply))
	}
}

// hintProgress reports an update that no contract contains.
func (c *Context) hintProgress(update any) {
	if c.route.stream || c.route.contract.progress != nil {
		return
	}
	c.conn.router.hintContract(hint{"progress sent that is not declared", c.route.name},
		fmt.Sprintf("set RouteDoc.Progress of the route to a %T, so that contracts and generated clients have it", update))
}

// hintCall reports a call to a client that no contract contains.
func (r *Router) hintCall(m Message, reply reflect.Type) {
	typ, err := envelope.MessageType(m)
	if err != nil || r.declared.Calls(typ) {
		return
	}
	r.hintContract(hint{"client called with a message that is not declared", typ},
		fmt.Sprintf("router.DeclareCall[%T, %v](r), so that contracts and generated clients have it", m, reply))
}

// endLockedGoroutine ends the goroutine, and with it the OS thread, if a handler has left it locked to that
// thread: later messages would run on a thread whose state the handler may have changed. Only the text
// of a stack says so, which takes too long to look at after every message of a server in production.
func (r *Router) endLockedGoroutine(route *Route) {
	stack := make([]byte, 128)
	head, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	if !bytes.Contains(head, []byte("locked to thread")) {
		return
	}
	r.hint(hint{"handler left its goroutine locked to an OS thread", route.name}, "type",
		"call runtime.UnlockOSThread before the handler returns; if the thread must not be used again, lock it on a goroutine that the handler starts")
	runtime.Goexit()
}
