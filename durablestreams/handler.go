package durablestreams

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/router"
)

// A handler serves streams. Each request is served on its own goroutine.
type handler struct {
	topic       func(*http.Request) string
	authorize   func(*http.Request, string) error
	open        func(ctx context.Context, topic string, q query) (reader, error)
	format      format
	origins     []string
	proxies     clientip.TrustedProxies
	maxBytes    int
	pollTimeout time.Duration
	readers     admission
	logger      *slog.Logger
	ends        atomic.Uint32   // how often the access of a user has ended
	shutdown    context.Context //nolint:containedctx // canceled when the router begins to shut down
}

// A reader reads one stream for one request.
type reader interface {
	// read returns what is stored and has not been read, up to a number of bytes. It does not wait for more.
	read(ctx context.Context, maxBytes int) (page, error)

	// wait waits until read may return something, or until ctx is done.
	wait(ctx context.Context) error

	close()
}

// A page is a part of a stream.
type page struct {
	messages    [][]byte
	first, next offset
	upToDate    bool // there is nothing more at the moment
	closed      bool // and there will be nothing more
}

var (
	errGone      = &errors.Error{Code: errors.NotFound, Message: "the stream does not have what follows the offset any more"}
	errUnknown   = &errors.Error{Code: errors.NotFound, Message: "there is no such stream"}
	errNotIssued = &errors.Error{Code: errors.InvalidArgument, Message: "the offset is not one of this stream"}
)

// newHandler returns a handler without its function open.
func newHandler[Message any](r *router.Router, opts *Options[Message]) *handler {
	if r == nil {
		panic("durablestreams: the router is nil; create one with router.New")
	}
	access := r.Host()
	h := &handler{
		topic: opts.Topic, authorize: opts.Authorize, format: newFormat(opts.ContentType), origins: opts.Origins, proxies: opts.Proxies,
		maxBytes: opts.MaxBytes, pollTimeout: opts.PollTimeout, logger: access.Logger,
	}
	h.readers.max, h.readers.maxPerAddress = opts.MaxReaders, opts.MaxPerAddress
	h.readers.init()
	access.OnAccessEnd(func(host.AccessEnd) { h.ends.Add(1) })
	var cancel context.CancelFunc
	h.shutdown, cancel = context.WithCancel(context.Background())
	access.OnShutdown(host.Shutdown{Begin: cancel, End: func(context.Context) {}})
	return h
}

// ServeHTTP reads a stream.
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	setCORS(header, h.origins, req.Header.Get("Origin"))
	switch req.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		servePreflight(w)
		return
	default:
		header.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "streams are read with GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if h.shutdown.Err() != nil {
		h.unavailable(w)
		return
	}
	address := rules.PrefixOf(h.proxies.ClientIP(req))
	if !h.readers.enter(address) {
		header.Set("Retry-After", "1")
		http.Error(w, "too many readers", http.StatusTooManyRequests)
		return
	}
	defer h.readers.leave(address)
	h.serve(w, req)
}

// serve serves a request that is admitted.
func (h *handler) serve(w http.ResponseWriter, req *http.Request) {
	response := response{handler: h, w: w, req: req, topic: h.topic(req), ends: h.ends.Load()}
	if err := h.authorize(req, response.topic); err != nil {
		h.fail(w, response.topic, errUnknown)
		return
	}
	values := req.URL.Query()
	if req.Method == http.MethodHead { // describes the stream, whatever is asked for
		values = map[string][]string{"offset": {"now"}, "run": values["run"]}
	}
	q, problem := parseQuery(values)
	if problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(h.shutdown, cancel)()
	s, err := h.open(ctx, response.topic, q)
	if err != nil {
		h.fail(w, response.topic, err)
		return
	}
	defer s.close()
	response.query, response.reader = q, s
	if q.live == sse {
		response.stream(ctx)
		return
	}
	response.once(ctx)
}

// fail answers with an error.
func (h *handler) fail(w http.ResponseWriter, topic string, err error) {
	switch code := errors.CodeOf(err); {
	case err == errGone: //nolint:errorlint // one value
		http.Error(w, errGone.Message, http.StatusGone)
	case code == errors.NotFound:
		http.Error(w, errUnknown.Message, http.StatusNotFound)
	case code == errors.InvalidArgument:
		http.Error(w, errNotIssued.Message, http.StatusBadRequest)
	case code == errors.Internal:
		h.logger.Error("penstock: durable stream", slog.String("topic", topic), slog.Any("error", err))
		http.Error(w, "internal error", http.StatusInternalServerError)
	default:
		h.unavailable(w)
	}
}

// unavailable answers while the store cannot be reached or the server shuts down.
func (h *handler) unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the stream is unavailable at the moment", http.StatusServiceUnavailable)
}
