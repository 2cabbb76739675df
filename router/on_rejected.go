package router

import (
	"net/netip"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/ipprefix"
	"github.com/penstock-go/penstock/internal/sampling"
)

// A Rejection describes a rejected request, connection or message, for Options.OnRejected.
type Rejection struct {
	Conn     *Conn      // nil for a request that was not upgraded, or only to be rejected
	Identity Identity   // of the connection; for a request what Options.Authenticate returned, also with an error
	IP       netip.Addr // of the client; the zero netip.Addr if it is unknown
	Type     string     // message type as in IngressContext; "" for requests and connections

	// Code is that of the error, also if the client does not receive it.
	Code errors.Code

	// Reason names the check. For requests and connections it is the Reason of EventRejected. For
	// messages it is the stage of the pipeline: "size", "parse", "ingress", "draining", "route",
	// "concurrency", "decode", "handler" or "reply", or "deadline" for a call that was not answered
	// in time.
	Reason string

	// Err is the [*LimitExceeded] if a limit was exceeded, and otherwise the error of the
	// application, if the client does not receive all of it. Else it is nil.
	Err error

	RetryAfter time.Duration // as in errors.Error: 0 if unknown, errors.Never if retrying cannot help

	// Unreported is the number of rejections, of all clients, for which Options.OnRejected was not
	// called since the previous call.
	Unreported int64
}

// reportRejected reports a rejected message. A message whose sender has canceled it or has
// disconnected is not reported.
func (c *Conn) reportRejected(typ string, failed *inspectedError) {
	if c.router.opts.OnRejected == nil || failed.payload.Code == errors.Canceled {
		return
	}
	rejection := failed.rejection(c, typ)
	rejection.Identity, rejection.IP, rejection.Reason = c.Identity(), c.ip, failed.stage
	if c.router.rejections.sample(&rejection) {
		c.sub.WS.Wake() // the hook must not delay the answer
		c.router.callOnRejected(rejection)
	}
}

// reportRejection reports a rejected request or connection.
func (r *Router) reportRejection(rejection *Rejection) {
	if r.opts.OnRejected != nil && r.rejections.sample(rejection) {
		r.callOnRejected(*rejection)
	}
}

func (r *Router) callOnRejected(rejection Rejection) {
	r.hook("OnRejected", func() { r.opts.OnRejected(rejection) })
}

// rejection returns a report with what the error says. The connection is nil if none was opened.
func (p *inspectedError) rejection(c *Conn, typ string) Rejection {
	rejection := Rejection{Conn: c, Type: typ, Code: p.payload.Code, Err: p.cause, RetryAfter: p.retryAfter}
	if p.limited {
		limit := p.limit
		limit.Conn, limit.Type, limit.Messages = c, typ, 1
		rejection.Err = &limit
	}
	return rejection
}

// A rejectionSampler selects the rejections that are reported: at most one per client and
// sampleInterval.
type rejectionSampler struct {
	clients sampling.Sampler[rejectedClient]

	mu         sync.Mutex
	unreported int64
}

const sampleInterval = time.Second

func (s *rejectionSampler) init() { s.clients.Init(1, sampleInterval) }

// A rejectedClient is what is sampled together: a user, else the addresses of one customer of a
// provider, else a connection, else all requests.
type rejectedClient struct {
	user    userKey
	network netip.Prefix
	connID  string
}

func clientOf(rejection *Rejection) (client rejectedClient) {
	switch {
	case rejection.Identity.UserID != "":
		client.user = rejection.Identity.user()
	case rejection.IP.IsValid():
		client.network = ipprefix.Of(rejection.IP)
	case rejection.Conn != nil:
		client.connID = rejection.Conn.id
	}
	return client
}

// sample reports whether the application receives a rejection, and sets Unreported if so.
func (s *rejectionSampler) sample(rejection *Rejection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.clients.Passes(clientOf(rejection)) {
		s.unreported++
		return false
	}
	rejection.Unreported, s.unreported = s.unreported, 0
	return true
}
