package router

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// ServeHTTP upgrades a request to a connection and returns; the connection lives
// on until either side closes it. What is wrong with a request is told by an
// HTTP status, because a browser's page can act on nothing else so early.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.build()
	if err := rejectBody(w, req); err != nil {
		r.rejectHandshake(w, "handshake", inspect(err, ""))
		return
	}
	if !r.origin.allows(req, r.opts.TrustedProxies) {
		r.rejectHandshake(w, "origin", inspect(errors.Errorf(errors.PermissionDenied, "this page may not connect"), ""))
		return
	}
	c := &Conn{router: r, ip: r.opts.TrustedProxies.ClientIP(req), topics: map[string]struct{}{}}
	if err := r.conns.acquireAddress(c.ip); err != nil {
		r.rejectHandshake(w, "draining", inspect(err, ""))
		return
	}
	var failed *inspectedError
	defer func() {
		if c.ws == nil {
			r.conns.releaseAddress(c.ip)
		}
		if failed != nil {
			r.rejectHandshake(w, "authentication", failed)
		}
	}()
	if r.opts.Authenticate != nil {
		r.guard(&failed, "Authenticate", nil, func() (err error) {
			c.identity, err = r.opts.Authenticate(req)
			return err
		})
	}
	if failed == nil {
		failed = r.accept(w, req, c)
	}
}

// rejectBody rejects a request with a body. An upgrade with one would have to wait for it,
// and RFC 6455 gives it no meaning.
func rejectBody(w http.ResponseWriter, req *http.Request) error {
	if req.ContentLength == 0 && len(req.TransferEncoding) == 0 {
		return nil
	}
	// The server must not wait for the rest of the body either.
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // without one, the server's own timeout holds
	return errors.Errorf(errors.InvalidArgument, "a handshake must not have a body")
}

// accept upgrades. Without a connection it leaves nothing behind. What it returns is what the
// client is still to be told.
func (r *Router) accept(w http.ResponseWriter, req *http.Request, c *Conn) *inspectedError {
	if err := r.conns.acquireUser(c.identity); err != nil {
		return inspect(err, "")
	}
	shard := &r.shards[rand.N(connShards)]
	c.deadlines = &shard.deadlines
	c.ctx, c.cancel = context.WithCancel(context.Background())
	defer func() {
		if c.ws == nil { // the ResponseWriter may have panicked
			c.cancel()
			r.conns.releaseUser(c.identity)
		}
	}()
	ws, err := wsconn.Accept(w, req, r.selectSubprotocol(req), &r.transport, (*owner)(c))
	if err == wsconn.ErrAnswered { //nolint:errorlint // never wrapped
		r.recordRejection("handshake", errors.InvalidArgument)
		return nil
	}
	if err != nil {
		r.rejectHandshake(w, "handshake", inspect(err, ""))
		return nil
	}
	c.ws, c.id = ws, crand.Text()
	c.inbound = executor.Memory[*incoming]{
		Size: (*incoming).memory, MaxBytes: r.opts.Limits.InboundBytes, Budget: &r.inbound, Ended: c.ctx.Done(),
	}
	c.messages = executor.SerialQueue[*incoming]{
		Run: c.handle, BeforeNext: ws.Wake, AfterLast: ws.Flush, MaxWaiting: maxWaitingJobs, Memory: &c.inbound, Pool: &shard.pool,
	}
	c.messages.Init()
	serve := c.serve
	c.resume = func() { shard.pool.Start(serve) }
	shard.pool.Retain()
	c.active.Store(1)
	defer c.start() // even if an observer or the Logger calls runtime.Goexit
	r.observe(Event{Kind: EventOpened})
	r.logOpened(c)
	return nil
}

// start makes the connection known and reads from it.
func (c *Conn) start() {
	if c.router.conns.add(c) {
		c.drain()
	}
	go c.open()
}

// transport is what the connections have in common.
func transportOptions(o *Options) wsconn.Options {
	l, t := o.Limits, o.Timeouts
	opts := wsconn.Options{
		MaxMessageBytes: l.MaxReadBytes,
		MessageTimeout:  t.Message,
		WriteTimeout:    t.Write,
		CloseTimeout:    t.Close,
		PingInterval:    t.Ping,
		PongTimeout:     t.Pong,
		BufferBytes:     o.BufferBytes,
		QueueBytes:      l.QueueBytes,
		QueueMessages:   l.QueueMessages,
		SlowConsumer:    wsconn.SlowConsumerPolicy(o.SlowConsumer),
		Poller:          new(netpoll.Poller),
	}
	if o.CompressMinBytes > 0 {
		opts.Deflater = wsconn.NewDeflater(o.CompressMinBytes)
	}
	return opts
}

// subprotocol returns what to select: the application's if the client offers
// it, otherwise the entry that carries the token, because browsers give up on a
// server that selects none of what they offer.
func (r *Router) selectSubprotocol(req *http.Request) string {
	offered := offeredSubprotocols(req)
	for _, p := range r.opts.Subprotocols {
		if slices.Contains(offered, p) {
			return p
		}
	}
	for _, p := range offered {
		if strings.HasPrefix(p, bearerPrefix) {
			return p
		}
	}
	return ""
}

// reject answers a request that does not become a connection. If it is no limit, reason
// says why.
func (r *Router) rejectHandshake(w http.ResponseWriter, reason string, failed *inspectedError) {
	payload := failed.payload
	if failed.limited {
		payload.Code = errors.ResourceExhausted // a rate, too, is a 429
		reason = "limit"
		defer r.recordLimitRejection(failed.limit)
	} else {
		defer r.reportError(nil, "", failed)
	}
	defer r.recordRejection(reason, payload.Code)
	status := httpStatus(payload.Code)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.FormatInt(retrySeconds(failed.retryAfter), 10))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = marshal(w, payload)
}

func (r *Router) recordRejection(reason string, code errors.Code) {
	r.observe(Event{Kind: EventRejected, Reason: reason, Code: code})
	r.logRejected(reason, code)
}

func (r *Router) recordLimitRejection(l LimitExceeded) {
	r.observe(Event{Kind: EventLimitExceeded, Reason: string(l.Kind), Count: 1})
	r.limitExceeded(l)
}

// retrySeconds is at least 1: a client that comes back at once helps nobody.
func retrySeconds(d time.Duration) int64 {
	if d == errors.Never {
		return int64(24 * time.Hour / time.Second)
	}
	return max(1, ceil(d, time.Second))
}

func httpStatus(code errors.Code) int {
	switch code {
	case errors.Unauthenticated:
		return http.StatusUnauthorized
	case errors.PermissionDenied:
		return http.StatusForbidden
	case errors.ResourceExhausted:
		return http.StatusTooManyRequests
	case errors.Unavailable:
		return http.StatusServiceUnavailable
	case errors.InvalidArgument:
		return http.StatusBadRequest
	case errors.Unimplemented:
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}
