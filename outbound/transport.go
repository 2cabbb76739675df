package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Options configure a [Transport]. The zero value is a working configuration.
type Options struct {
	// Base sends the requests. If nil, it is [http.DefaultTransport].
	Base http.RoundTripper

	// Route names whose limit a request counts against. If nil, it is the method, the
	// host and the path: "GET api.example.com/users". Give requests that share a limit
	// one route; Discord tells them apart by the method and by the channel, guild or
	// webhook in the path, not by what else is there.
	Route func(*http.Request) string

	// Retries is how often a request that was refused with 429 is sent again, once its
	// turn has come. It is not if it has a body and no GetBody. If 0, it is 3; if
	// negative, requests are sent once.
	Retries int

	// OnRefused is called with every 429. Discord bans an address that causes 10,000
	// refusals in ten minutes.
	OnRefused func(route string, told Status)

	// OnError is called if the Windows cannot be told of a response. What it told is
	// lost then, and its request counts for a lease.
	OnError func(error)
}

const (
	defaultRetries = 3
	updateTime     = time.Second // for telling what nobody waits for longer
	maxDrained     = 64 << 10    // bytes of a refusal, so that its connection can be used again
)

// A Transport is an [http.RoundTripper] that sends requests when an API's limits allow.
// Until then callers wait, those of a route in the order in which they came, for as long
// as their contexts allow. Requests of one route may be under way at the same time.
//
// A request that is refused all the same is sent again, before those that came after it;
// when it has no retries left, its caller gets the 429.
//
// If the Windows fail, nothing is sent and the caller gets the error: without them, it is
// unknown what the API would say.
type Transport struct {
	options Options
	windows Windows
	lines   lines
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a transport. It panics if windows is nil.
func NewTransport(windows Windows, opts *Options) *Transport {
	if windows == nil {
		panic("outbound: NewTransport needs windows")
	}
	t := &Transport{windows: windows, lines: lines{routes: map[string]*line{}}}
	if opts != nil {
		t.options = *opts
	}
	if t.options.Base == nil {
		t.options.Base = http.DefaultTransport
	}
	if t.options.Route == nil {
		t.options.Route = routeOf
	}
	if t.options.Retries == 0 {
		t.options.Retries = defaultRetries
	}
	return t
}

func routeOf(req *http.Request) string { return req.Method + " " + req.URL.Host + req.URL.Path }

// RoundTrip sends a request when its turn has come.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	route := t.options.Route(req)
	number := t.lines.join(route)
	defer t.lines.leave(route)
	next := req
	for retries := t.options.Retries; ; retries-- {
		resp, err := t.try(next, route, number)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || retries <= 0 {
			return resp, err
		}
		again, err := replay(req)
		if err != nil {
			closeBody(resp.Body)
			return nil, err
		}
		if again == nil {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrained) // a refusal is not read
		closeBody(resp.Body)
		next = again
	}
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// replay returns a request that can be sent once more, or nil.
func replay(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return again, nil
	case req.GetBody == nil:
		return nil, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("outbound: body of a request to be sent again: %w", err)
	}
	again.Body = body
	return again, nil
}

// try sends a request once.
func (t *Transport) try(req *http.Request, route string, number uint64) (*http.Response, error) {
	ctx := req.Context()
	claim, err := t.claim(ctx, route, number)
	if err != nil {
		closeBody(req.Body)
		return nil, err
	}
	if ctx.Err() != nil {
		t.tell(ctx, route, claim, Status{Unsent: true})
		closeBody(req.Body)
		return nil, context.Cause(ctx)
	}
	resp, err := t.options.Base.RoundTrip(req)
	if err != nil {
		// Otherwise it may have arrived: it counts as under way until its lease ends.
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			t.tell(ctx, route, claim, Status{Unsent: true})
		}
		return nil, err
	}
	told := ParseHeaders(resp.StatusCode, resp.Header)
	t.tell(ctx, route, claim, told)
	if resp.StatusCode == http.StatusTooManyRequests && t.options.OnRefused != nil {
		t.options.OnRefused(route, told)
	}
	return resp, nil
}

// claim returns when a request may be sent.
func (t *Transport) claim(ctx context.Context, route string, number uint64) (Claim, error) {
	if err := t.lines.await(ctx, route, number); err != nil {
		return Claim{}, err
	}
	for {
		claim, err := t.windows.Claim(ctx, route)
		if err == nil && claim.Wait > 0 {
			err = sleep(ctx, claim.Wait)
		}
		switch {
		case err != nil || claim.Wait <= 0:
			t.lines.pass(route)
			return claim, err
		case t.lines.isBehind(route, number):
			t.lines.pass(route)
			if err := t.lines.await(ctx, route, number); err != nil {
				return Claim{}, err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell is done before the caller gets the response, so that its next request is claimed
// knowing it, and done even if the caller gave up.
func (t *Transport) tell(ctx context.Context, route string, claim Claim, told Status) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), updateTime)
	defer cancel()
	if err := t.windows.Update(ctx, route, claim, told); err != nil && t.options.OnError != nil {
		t.options.OnError(fmt.Errorf("outbound: what %s told is lost: %w", route, err))
	}
}

func closeBody(body io.Closer) {
	if body != nil {
		_ = body.Close()
	}
}
