package router

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// ServeHTTP upgrades a request to a WebSocket connection (RFC 6455, section 4.2) and returns;
// the connection lives on until either side closes it. A rejected request is answered with an
// HTTP status and the error as JSON, and with Retry-After for the statuses 429 and 503, unless
// Options.RejectAfterUpgrade is set. A malformed handshake is answered with a status and plain text.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.build()
	c := &Conn{router: r, ip: r.opts.TrustedProxies.ClientIP(req)}
	var rejection *handshakeRejection
	c.address, rejection = r.conns.chargeHandshake(c.ip, r.sinceStart(time.Now()))
	if rejection == nil {
		rejection = r.checkRequest(w, req)
	}
	if rejection == nil {
		rejection = r.conns.acquireAddress(c)
	}
	if rejection != nil {
		c.rejectHandshake(w, req, rejection)
		return
	}
	defer func() { // even if Authenticate calls runtime.Goexit or the ResponseWriter panics
		if c.sub.WS == nil {
			r.conns.releaseAddress(c.address)
		}
		if rejection != nil {
			c.rejectHandshake(w, req, rejection)
		}
	}()
	if r.authenticate(req, c, &rejection); rejection != nil {
		return
	}
	if r.setContext(req, c, &rejection); rejection == nil {
		rejection = r.accept(w, req, c)
	}
}

// checkRequest checks what is known without calling application code.
func (r *Router) checkRequest(w http.ResponseWriter, req *http.Request) *handshakeRejection {
	if err := handshake.RefuseBody(w, req); err != nil {
		return rejectedBy(reasonHandshake, err)
	}
	if !r.origins.Allow(req, r.opts.TrustedProxies) {
		return rejectedBy(reasonOrigin, errors.Errorf(errors.PermissionDenied, "this page may not connect"))
	}
	return nil
}

// authenticate sets c.identity, or rejection. It sets rejection in a deferred function,
// because Options.Authenticate may call runtime.Goexit.
func (r *Router) authenticate(req *http.Request, c *Conn, rejection **handshakeRejection) {
	since := r.access.awaitNow(req.Context())
	if r.opts.Authenticate == nil {
		return
	}
	var failed *inspectedError
	defer func() {
		if failed != nil {
			*rejection = rejectedByAuthenticate(failed)
		}
	}()
	r.guard(&failed, "Authenticate", nil, func() error {
		identity, err := r.opts.Authenticate(req)
		if err == nil && identity.expired(time.Now()) {
			err = errIdentityExpired
		}
		c.identity.Store(newConnIdentity(identity, since))
		return err
	})
}

// setContext sets the context from which that of the connection is derived, or rejection. Like
// authenticate, it sets rejection in a deferred function.
func (r *Router) setContext(req *http.Request, c *Conn, rejection **handshakeRejection) {
	c.ctx = context.Background()
	if r.opts.ConnContext == nil {
		return
	}
	var failed *inspectedError
	defer func() {
		if failed != nil {
			*rejection = &handshakeRejection{reasonConnContext, failed}
		}
	}()
	r.guard(&failed, "ConnContext", nil, func() error {
		values := r.opts.ConnContext(req)
		if values == nil {
			return errNoConnContext
		}
		c.ctx = context.WithoutCancel(values)
		return nil
	})
}

// errNoConnContext reports a mistake of the application.
var errNoConnContext = errors.New("router: Options.ConnContext returned nil; return req.Context() or context.Background() if there are no values")

// accept upgrades the request and starts the connection. If it does not set c.ws, it has
// released all that it acquired; it returns the rejection that the caller must answer with,
// or nil if the request has been answered.
func (r *Router) accept(w http.ResponseWriter, req *http.Request, c *Conn) *handshakeRejection {
	if rejection := r.conns.acquireUser(c.Identity()); rejection != nil {
		return rejection
	}
	c.shard = uint8(rand.N(connShards))
	shard := &r.shards[c.shard]
	c.ctx, c.cancel = context.WithCancelCause(c.ctx)
	defer func() {
		if c.sub.WS == nil { // also if the ResponseWriter has panicked
			c.cancel(nil)
			r.conns.releaseUser(c.Identity())
		}
	}()
	var subprotocol string
	c.sub.Format, subprotocol = r.selectFormat(req)
	ws, err := wsconn.Accept(w, req, subprotocol, &r.transport, (*transportHandler)(c))
	switch {
	case err == nil:
	case errors.Is(err, wsconn.ErrAnswered):
		c.recordRequestRejection(req, rejectedBy(reasonHandshake, errHandshake))
		return nil
	case errors.Is(err, wsconn.ErrDisconnected):
		c.recordRequestRejection(req, rejectedBy(reasonHandshake, errDisconnected))
		return nil
	default:
		return rejectedBy(reasonHandshake, err)
	}
	c.sub.WS, c.id = ws, r.newConnID()
	c.messages.Owner, c.messages.Config = (*messageQueue)(c), &shard.messages
	shard.pool.Retain()
	c.active.Store(1)
	defer c.start() // even if an observer or the Logger calls runtime.Goexit
	r.observe(Event{Kind: EventOpened})
	r.logOpened(c)
	return nil
}

// start registers the connection and starts the goroutine that opens it.
func (c *Conn) start() {
	if c.router.conns.add(c) {
		c.drain()
	}
	c.joinUserLog()
	c.checkAccess()
	c.startExpiry()
	go c.open()
}
