package aisdk

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A Handler serves WebSocketChatTransport of the AI SDK, at the path that it is registered for. It
// is shut down with its router: it refuses new connections, waits until the runs of this node have
// ended, and closes its connections with 1012.
//
// Locks: stream.mu, then conn.writing; Handler.mu, then conn.mu. conn.mu may be acquired under conn.writing, and
// neither stream.mu nor conn.writing under Handler.mu or conn.mu.
type Handler struct {
	runs    *run.Runs[Chunk]
	opts    Options
	origins handshake.Origins
	logger  *slog.Logger

	authentication func(context.Context) uint32
	accessEndOf    func(tenantID, userID string, authentication uint32) (host.AccessEnd, bool)

	mu      sync.Mutex
	closing bool
	conns   map[*conn]struct{}
	streams map[string]map[*stream]struct{} // by the ID of the run
}

// New returns a handler for runs of the router r, which must not have begun to serve. It panics if
// it or the runs are nil, or if an option is invalid.
func New(r *router.Router, runs *run.Runs[Chunk], opts *Options) *Handler {
	if r == nil || runs == nil {
		panic("aisdk: the router or the runs are nil; create them with router.New and run.New")
	}
	if opts == nil {
		opts = new(Options)
	}
	h := &Handler{runs: runs, opts: *opts, conns: map[*conn]struct{}{}, streams: map[string]map[*stream]struct{}{}}
	h.opts.mustBeValid()
	h.opts.setDefaults()
	h.origins = handshake.ParseOrigins(opts.Origins)
	access := r.Host()
	h.logger, h.authentication, h.accessEndOf = access.Logger, access.Authentication, access.AccessEndOf
	access.OnAccessEnd(h.endAccess)
	access.OnShutdown(host.Shutdown{Begin: h.beginShutdown, End: h.endShutdown})
	return h
}

// ServeHTTP upgrades a request to a WebSocket connection, and returns when it is closed. A refused
// request is answered as [router.Router.ServeHTTP] does it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	since := h.authentication(req.Context())
	id, err := h.admit(w, req)
	if err != nil {
		h.refuse(w, req, err)
		return
	}
	accept := &websocket.AcceptOptions{InsecureSkipVerify: true} // the origin is checked
	if protocol := handshake.SelectSubprotocol(nil, handshake.OfferedSubprotocols(req)); protocol != "" {
		accept.Subprotocols = []string{protocol}
	}
	ws, err := websocket.Accept(w, req, accept)
	if err != nil {
		return // it has answered
	}
	h.serve(req, ws, id, since)
}

// admit returns the identity of a request.
func (h *Handler) admit(w http.ResponseWriter, req *http.Request) (id router.Identity, err error) {
	if err := handshake.RefuseBody(w, req); err != nil {
		return id, err
	}
	if !h.origins.Allow(req, h.opts.TrustedProxies) {
		return id, errors.Errorf(errors.PermissionDenied, "this page may not connect")
	}
	if h.isClosing() {
		return id, errShutdown
	}
	id, err = h.opts.Authenticate(req)
	if err == nil && !id.ExpiresAt.IsZero() && !time.Now().Before(id.ExpiresAt.Round(0)) {
		err = errExpired
	}
	return id, err
}

var (
	errShutdown = &errors.Error{Code: errors.Unavailable, Message: "the server is shutting down"}
	errExpired  = &errors.Error{Code: errors.Unauthenticated, Message: "the identity has expired"}
)

// refuse answers a request that is not upgraded.
func (h *Handler) refuse(w http.ResponseWriter, req *http.Request, err error) {
	public := publicPart(err)
	if public.Code == errors.Internal {
		h.logger.Error("penstock: aisdk: a handshake has failed", "error", err)
	}
	if _, limited := errors.AsType[*router.LimitExceeded](err); limited {
		public.Code = errors.ResourceExhausted // status 429 even if the error says to never retry
	}
	handshake.WriteErrorHeader(w, req, public.Code, public.RetryAfter)
	text, _ := jsonv2.Marshal(failure.Payload(public))
	_, _ = w.Write(text)
}

// publicPart returns what a page may know of an error.
func publicPart(err error) *errors.Error {
	if l, ok := errors.AsType[*router.LimitExceeded](err); ok {
		e := &errors.Error{Code: errors.ResourceExhausted, Message: "the limit is exceeded", RetryAfter: l.RetryAfter}
		if l.RetryAfter == errors.Never {
			e.Code = errors.FailedPrecondition
		}
		if l.Policy != "" {
			e.Details = map[string]any{"policy": l.Policy}
		}
		return e
	}
	if e, ok := errors.AsType[*errors.Error](err); ok {
		return failure.WithoutAnswer(e)
	}
	return &errors.Error{Code: errors.Internal, Message: failure.Message(errors.Internal), Err: err}
}

func (h *Handler) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

// add adds a connection, unless the handler is closing.
func (h *Handler) add(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.conns[c] = struct{}{}
	if end, ok := h.accessEndOf(c.id.TenantID, c.id.UserID, c.since); ok { // between the authentication and now
		c.endAccess(end)
	}
	return true
}

func (h *Handler) remove(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// attach adds a stream to those that receive transient data of a run, unless it has ended.
func (h *Handler) attach(runID string, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.isDetached {
		return
	}
	s.attachedTo = runID
	if h.streams[runID] == nil {
		h.streams[runID] = map[*stream]struct{}{}
	}
	h.streams[runID][s] = struct{}{}
}

// detach ends what attach has begun, and what it may begin later.
func (h *Handler) detach(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.isDetached = true
	if delete(h.streams[s.attachedTo], s); len(h.streams[s.attachedTo]) == 0 {
		delete(h.streams, s.attachedTo)
	}
}

// sendTransient queues a chunk for the streams of a run on this node. One that is too slow misses
// it.
func (h *Handler) sendTransient(runID string, c Chunk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams[runID] {
		select {
		case s.transient <- c:
			put(s.wake)
		default:
		}
	}
}

// put puts a token into a channel with room for one.
func put(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// endAccess ends what Router.Revoke and Router.DisconnectUser end.
func (h *Handler) endAccess(end host.AccessEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		switch {
		case !end.Concerns(c.id.TenantID, c.id.UserID, c.since):
		case end.Topics != nil:
			c.revoke(end.Topics)
		default:
			c.endAccess(end)
		}
	}
}

func (h *Handler) beginShutdown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
}

// endShutdown is called when the runs of this node have ended. It waits until the pages have
// received the ends, and closes their connections.
func (h *Handler) endShutdown(ctx context.Context) {
	h.mu.Lock()
	conns := make([]*conn, 0, len(h.conns))
	for c := range h.conns {
		conns = append(conns, c)
	}
	h.mu.Unlock()
	var closed sync.WaitGroup
	for _, c := range conns {
		closed.Go(func() { c.shutDown(ctx) })
	}
	closed.Wait()
}

// recovered is deferred on goroutines that call the application. It logs a panic, and calls answer.
func (h *Handler) recovered(what string, answer func()) {
	if p := recover(); p != nil {
		h.logger.Error("penstock: aisdk: "+what+" panicked", "panic", failure.PanicText(p), "stack", string(debug.Stack()))
		answer()
	}
}
