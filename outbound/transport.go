package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
)

// Options configure a [Transport]. The zero value is a working configuration.
type Options struct {
	// Base sends the requests. If nil, it is [http.DefaultTransport].
	Base http.RoundTripper

	// Route returns the name of the limit that a request counts against. Requests that share a
	// limit must share a route. If nil, the route is the method, the host and the path:
	// "GET api.example.com/users". Discord's limits depend on the method and on the channel,
	// guild or webhook ID in the path; other IDs in the path must not be part of the route.
	Route func(*http.Request) string

	// MaxRetries is how often a request that got status 429 is sent again, each time after
	// the wait that the response demands. A request with a body but without GetBody is not
	// retried. If 0, it is 3; if negative, requests are never retried.
	MaxRetries int

	// OnRateLimited is called for every response with status 429. Discord bans an address that
	// causes 10,000 of them in ten minutes. It may be called concurrently.
	OnRateLimited func(route string, status Status)

	// OnError is called if [Budget.Update] fails. The status of that response is lost, and its
	// request counts as in flight for one lease. It may be called concurrently.
	OnError func(error)
}

const (
	defaultMaxRetries = 3
	updateTimeout     = time.Second
	maxDiscardBytes   = 64 << 10 // of a 429's body, so that its connection can be reused
)

// A Transport is an [http.RoundTripper] that sends a request when the API's rate limits permit
// it. Until then the caller waits, at most until its context ends. Callers of one route are
// served in order of arrival. Several requests to one route may be in flight at the same time.
//
// A request that gets status 429 in spite of this is retried before later requests. After the
// last retry, the caller gets the 429 response. If a 429 does not say how long to wait, its route
// waits for a second, and twice as long after each further one, up to a minute, until a request
// that was sent later is accepted.
//
// If the [Budget] fails, the Transport sends nothing and returns the error, because it cannot
// know whether the API would accept the request. A Transport is safe for concurrent use.
type Transport struct {
	options Options
	budget  Budget
	waiters waiters
	limits  limits
	backoff backoffs
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a Transport. If opts is nil, the defaults apply. It panics if budget is
// nil.
func NewTransport(budget Budget, opts *Options) *Transport {
	if budget == nil {
		panic("outbound: NewTransport with a nil Budget; pass outbound.NewMemoryBudget(nil), for example")
	}
	t := &Transport{budget: budget, waiters: waiters{routes: map[string]*waitQueue{}}, limits: limits{routes: map[string]*routeLimits{}, open: map[string]openLimit{}}, backoff: backoffs{routes: map[string]backoff{}}}
	if opts != nil {
		t.options = *opts
	}
	if t.options.Base == nil {
		t.options.Base = http.DefaultTransport
	}
	if t.options.Route == nil {
		t.options.Route = defaultRoute
	}
	if t.options.MaxRetries == 0 {
		t.options.MaxRetries = defaultMaxRetries
	}
	return t
}

func defaultRoute(req *http.Request) string {
	return req.Method + " " + req.URL.Host + req.URL.Path
}

// RoundTrip waits until the budget permits the request, sends it, and retries it after status
// 429. See [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	route := t.options.Route(req)
	number := t.waiters.join(route)
	defer t.waiters.leave(route)
	next := req // a request must not be sent twice, so each retry sends a clone
	for retries := t.options.MaxRetries; ; retries-- {
		resp, err := t.send(next, route, number)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || retries <= 0 {
			return resp, err
		}
		retry, err := cloneForRetry(req)
		if err != nil {
			closeBody(resp.Body)
			return nil, err
		}
		if retry == nil {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxDiscardBytes) // an error only prevents reuse
		closeBody(resp.Body)
		next = retry
	}
}

// CloseIdleConnections closes the idle connections of Base, if Base supports it.
// [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// cloneForRetry returns a copy of req with a new body, or nil if the body cannot be repeated.
func cloneForRetry(req *http.Request) (*http.Request, error) {
	clone := req.Clone(req.Context())
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return clone, nil
	case req.GetBody == nil:
		return nil, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("outbound: get the body for a retry: %w", err)
	}
	clone.Body = body
	return clone, nil
}

// send sends a request once, after it has acquired it from the budget.
func (t *Transport) send(req *http.Request, route string, number uint64) (*http.Response, error) {
	ctx := req.Context()
	acquired, err := t.acquire(ctx, route, number)
	if err != nil {
		closeBody(req.Body)
		return nil, err
	}
	if ctx.Err() != nil {
		t.giveBack(ctx, acquired)
		closeBody(req.Body)
		return nil, context.Cause(ctx)
	}
	sentAt := time.Now()
	resp, err := t.options.Base.RoundTrip(req)
	if err != nil {
		// After a failed dial the API has not seen the request. After any other error it may
		// have, so the request stays in flight until its lease ends.
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			t.giveBack(ctx, acquired)
		}
		return nil, err
	}
	parsed := parseResponse(resp.StatusCode, resp.Header)
	switch {
	case parsed.guessed:
		parsed.status.RetryAfter = t.backoff.rejected(route, sentAt)
	case resp.StatusCode != http.StatusTooManyRequests:
		t.backoff.accepted(route, sentAt)
	}
	t.record(req, acquired, &parsed)
	if resp.StatusCode == http.StatusTooManyRequests && t.options.OnRateLimited != nil {
		t.options.OnRateLimited(route, parsed.status)
	}
	return resp, nil
}

// acquire blocks until the budget permits the request. The caller holds its route's turn while
// it asks the budget, and passes the turn on before acquire returns.
func (t *Transport) acquire(ctx context.Context, route string, number uint64) ([]acquiredLimit, error) {
	if err := t.waiters.await(ctx, route, number); err != nil {
		return nil, err
	}
	for {
		acquired, wait, err := t.tryAcquire(ctx, route)
		if err == nil && wait > 0 {
			if rules.Sleep(ctx, wait) != nil {
				err = context.Cause(ctx)
			}
		}
		switch {
		case err != nil || wait <= 0:
			t.waiters.pass(route)
			return acquired, err
		case t.waiters.mustYield(route, number): // let a retry of an earlier request go first
			t.waiters.pass(route)
			if err := t.waiters.await(ctx, route, number); err != nil {
				return nil, err
			}
		}
	}
}

func closeBody(body io.Closer) {
	if body != nil {
		_ = body.Close()
	}
}
