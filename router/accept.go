package router

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// ServeHTTP upgrades a request to a WebSocket connection (RFC 6455, section 4.2) and returns;
// the connection lives on until either side closes it. A refused request is answered with an
// HTTP status and the error as JSON, and with Retry-After for the statuses 429 and 503, unless
// Options.RefuseAfterUpgrade is set. A malformed handshake is answered with a status and plain text.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req, &Conn{router: r})
}

// serve is ServeHTTP for a connection whose transport is set.
func (r *Router) serve(w http.ResponseWriter, req *http.Request, c *Conn) {
	r.build()
	c.ip = r.opts.TrustedProxies.ClientIP(req)
	refusal := r.chargeHandshake(c)
	if refusal == nil {
		refusal = r.checkRequest(w, req)
	}
	if refusal == nil {
		refusal = r.acquireSlot(c)
	}
	if refusal != nil {
		c.refuseHandshake(w, req, refusal)
		return
	}
	defer func() { // even if the ResponseWriter panics
		if c.member.WS == nil {
			r.conns.Release(c.address)
		}
		if refusal != nil {
			c.refuseHandshake(w, req, refusal)
		}
	}()
	check := reasonAuthentication
	executor.Do(func() {
		if refusal = r.authenticate(req, c); refusal == nil {
			check = reasonConnContext
			refusal = r.setContext(req, c)
		}
	}, func() { refusal = &handshakeRefusal{check, failure.Exited(string(check))} })
	if refusal == nil {
		refusal = r.accept(w, req, c)
	}
}

// checkRequest checks what is known without calling application code.
func (r *Router) checkRequest(w http.ResponseWriter, req *http.Request) *handshakeRefusal {
	if err := handshake.RefuseBody(w, req); err != nil {
		return refusedBy(reasonHandshake, err)
	}
	if !r.origins.Allow(req, r.opts.TrustedProxies) {
		return refusedBy(reasonOrigin, errors.Errorf(errors.PermissionDenied, "this page may not connect"))
	}
	return nil
}

// authenticate sets c.identity, or returns a refusal.
func (r *Router) authenticate(req *http.Request, c *Conn) *handshakeRefusal {
	since := r.access.AwaitNow(req.Context())
	if r.opts.Authenticate == nil {
		return nil
	}
	refused := r.guard("Authenticate", nil, func() error {
		identity, err := r.opts.Authenticate(req)
		if err == nil && identity.expired(time.Now()) {
			err = errIdentityExpired
		}
		c.identity.Store(newConnIdentity(identity, since))
		return err
	})
	switch {
	case refused == nil:
		return nil
	case refused.Limit != nil:
		return &handshakeRefusal{reasonLimit, refused}
	default:
		return &handshakeRefusal{reasonAuthentication, refused}
	}
}

// setContext sets the values of the connection's context, or returns a refusal.
func (r *Router) setContext(req *http.Request, c *Conn) *handshakeRefusal {
	c.ctx.Values = context.Background()
	if r.opts.ConnContext == nil {
		return nil
	}
	refused := r.guard("ConnContext", nil, func() error {
		values := r.opts.ConnContext(req)
		if values == nil {
			return errNoConnContext
		}
		c.ctx.Values = context.WithoutCancel(values)
		return nil
	})
	if refused == nil {
		return nil
	}
	return &handshakeRefusal{reasonConnContext, refused}
}

// errNoConnContext reports a mistake of the application.
var errNoConnContext = errors.New("router: Options.ConnContext returned nil; return req.Context() or context.Background() if there are no values")

// accept upgrades the request and starts the connection. If it does not set c.member.WS, it has
// released all that it acquired; it returns the refusal that the caller must answer with,
// or nil if the request has been answered.
func (r *Router) accept(w http.ResponseWriter, req *http.Request, c *Conn) *handshakeRefusal {
	if refusal := r.conns.AcquireUser(c.Identity().user()); refusal != nil {
		return refusedSlot(refusal)
	}
	shard := &r.shards[random.N(connShards)]
	c.calls.Deadlines = &shard.deadlines
	defer func() {
		if c.member.WS == nil { // even if the ResponseWriter has panicked
			r.conns.ReleaseUser(c.Identity().user())
		}
	}()
	var subprotocol string
	c.member.Format, subprotocol = r.selectFormat(req, c.Transport())
	ws, err := wsconn.Accept(w, req, subprotocol, &r.transport, (*transportHandler)(c))
	switch {
	case err == nil:
	case errors.Is(err, wsconn.ErrAnswered):
		c.reportRefusedRequest(req, refusedBy(reasonHandshake, errHandshake))
		return nil
	case errors.Is(err, wsconn.ErrDisconnected):
		c.reportRefusedRequest(req, refusedBy(reasonHandshake, errDisconnected))
		return nil
	default:
		return refusedBy(reasonHandshake, err)
	}
	c.member.WS, c.member.ID = ws, rand.Text()
	if r.opts.Broker != nil {
		c.member.ID = r.asks.NewConnID()
	}
	c.messages.Owner, c.messages.Config = (*messageQueue)(c), &shard.messages
	shard.pool.Retain()
	c.active.Store(1)
	defer c.start() // even if the Logger panics, which net/http recovers
	r.hooks.Observe(observe.Event{Kind: observe.Opened, Transport: string(c.Transport())})
	r.log.Opened(&c.ctx, c.member.ID, c.ip, string(c.Transport()))
	if c.address != nil {
		r.proxyWarning.Opened(req, c.ip, &c.address.Forwarded)
	}
	return nil
}

// start registers the connection and starts the goroutine that opens and reads it.
func (c *Conn) start() {
	c.member.Number = c.router.conns.NextNumber(c.router.sinceStart(time.Now()))
	if c.router.conns.Add(c.member.ID, c) {
		c.drain()
	}
	c.router.members.JoinUserLog((*memberConn)(c))
	c.checkAccess()
	c.startExpiry()
	if c.router.opts.OnOpen == nil {
		go c.serve()
	} else {
		go c.open()
	}
}
