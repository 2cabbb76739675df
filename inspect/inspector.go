package inspect

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/router"
)

// An Inspector is an http.Handler for the paths "/", "/app.js", "/style.css" and "/api/", so mount
// it with [http.StripPrefix]. Create one with [New].
type Inspector struct {
	router  *router.Router
	access  host.Inspection
	opts    Options
	limits  []*inspectedLimit
	origin  http.CrossOriginProtection
	hosts   []string // Options.Hosts in lower case
	started time.Time

	recorders atomic.Pointer[recorders] // nil while nothing is recorded
	traces    traces
	refusals  refusalRing
	series    series
	audit     auditLog
}

// maxRows bounds each list in an answer.
const maxRows = 100

// New returns an inspector of a router that has not begun to serve. Call it before the ingress
// functions and the middleware are added, so that traces see what these refuse. It panics if
// the router or Options.Authorize is nil, if one of Options.Hosts is no host, or if a limit has no name, no limiter,
// or the name of another one.
func New(r *router.Router, opts *Options) *Inspector {
	if opts == nil || opts.Authorize == nil {
		panic("inspect: Options.Authorize is nil; it must decide who may use the inspector")
	}
	if r == nil {
		panic("inspect: the router is nil; create one with router.New")
	}
	i := &Inspector{router: r, access: r.Host().Inspection, opts: *opts, started: time.Now()}
	if i.opts.Timeout < 0 {
		panic(fmt.Sprintf("inspect: Options.Timeout is %v; it must not be negative", i.opts.Timeout))
	}
	i.hosts = mustBeHosts(i.opts.Hosts)
	if i.opts.Timeout == 0 {
		i.opts.Timeout = time.Second
	}
	if i.opts.Audit == nil {
		i.opts.Audit = logAudit
	}
	i.limits = newLimits(i.opts.Limits)
	r.Host().OnShutdown(host.Shutdown{Begin: func() {}, End: i.series.end})
	r.Observe(i.series.observe)
	r.ObserveRefusals(i.recordRefusal)
	r.UseIngress(i.ingress)
	r.Use(i.middleware)
	i.series.start()
	i.access.Answer(i.answer)
	return i
}

// ServeHTTP serves the page and the API.
func (i *Inspector) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	setHeaders(w.Header())
	if !i.servesHost(req.Host) {
		writeError(w, http.StatusMisdirectedRequest, "this host is none of inspect.Options.Hosts")
		return
	}
	if action, ok := cutAPI(req.URL.Path); ok {
		i.serveAPI(w, req, action)
		return
	}
	i.servePage(w, req)
}

// authorize reports whether the request may do something, and answers it if not.
func (i *Inspector) authorize(w http.ResponseWriter, req *http.Request, action Action) (actor string, ok bool) {
	actor, err := i.opts.Authorize(req, action)
	switch {
	case err == nil:
		return actor, true
	case errors.CodeOf(err) == errors.Unauthenticated:
		writeError(w, http.StatusUnauthorized, "not authenticated")
	default:
		writeError(w, http.StatusForbidden, "no permission for "+string(action))
	}
	return "", false
}
