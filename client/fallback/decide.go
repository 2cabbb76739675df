//go:build !js

package fallback

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// The rule by which a client falls back.
const (
	checkTimeout = 2 * time.Second // slower is not blocked
	useHTTPFor   = 10 * time.Minute
)

// header is in all answers of a server's fallback. The value 0 forbids to fall back.
const (
	header    = "Penstock-Fallback"
	forbidden = "0"
)

func (t *roundTripper) usesHTTP() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.until)
}

// suspects reports whether WebSocket may be blocked, and HTTP may be used.
func (t *roundTripper) suspects() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures > 0 && t.permitted
}

// works notes that WebSocket works.
func (t *roundTripper) works() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.worked, t.failures, t.until, t.probeWait = true, 0, time.Time{}, minProbeWait
}

// tryWebSocket lets the next attempt be one by WebSocket.
func (t *roundTripper) tryWebSocket() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = time.Time{}
}

// failed notes that an attempt by WebSocket has failed, which may have received messages before.
// The channel is closed when it is decided whether to fall back. Attempts that fail during one
// check count once.
func (t *roundTripper) failed(a *attempt, cause error) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.checking == nil {
		done := make(chan struct{})
		t.checking = done
		go func() { // for at most checkTimeout
			defer close(done)
			t.decide(a, cause)
		}()
	}
	return t.checking
}

// awaitCheck waits while a check is in progress.
func (t *roundTripper) awaitCheck(ctx context.Context) {
	t.mu.Lock()
	checking := t.checking
	t.mu.Unlock()
	if checking != nil {
		select {
		case <-checking:
		case <-ctx.Done():
		}
	}
}

// decide asks for the URL whether plain HTTP works, and counts the failure.
func (t *roundTripper) decide(a *attempt, cause error) {
	works, permits := t.check(a.header)
	t.mu.Lock()
	t.checking = nil
	if !works {
		t.failures = 0
		t.mu.Unlock()
		return
	}
	t.failures++
	t.permitted = permits && !t.opts.Measure
	blocked := t.failures >= t.neededLocked(a, cause)
	switches := blocked && t.permitted && a.format == ""
	if blocked {
		t.cause = cause
	}
	if switches {
		t.until, t.poll, t.probeWait = time.Now().Add(useHTTPFor), false, minProbeWait
	}
	t.mu.Unlock()
	if blocked && !switches {
		t.report(Blocked, cause)
	}
}

// neededLocked returns how many failures in a row a client needs to fall back, of which the attempt
// is the last.
func (t *roundTripper) neededLocked(a *attempt, cause error) int {
	response, ok := errors.AsType[*statusError](cause)
	t.worked = t.worked || a.received.Load()
	switch {
	case t.worked, ok && response.isOutage():
		return 3
	case errors.Is(cause, errSilent):
		return 1
	}
	return 2 // the last moment of an outage looks like this, too
}

// check reports whether plain HTTP works, and whether the server permits to use it.
func (t *roundTripper) check(h http.Header) (works, permits bool) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	resp, err := t.base.RoundTrip(t.request(ctx, http.MethodGet, "", h, nil))
	if err != nil {
		return false, false
	}
	defer func() { _ = resp.Body.Close() }()
	if t.opts.Measure {
		return resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests, true
	}
	return resp.StatusCode == http.StatusNoContent && isOurs(resp), resp.Header.Get(header) != forbidden
}

// isOurs reports whether a response is that of a server's fallback, and not one of a proxy.
func isOurs(resp *http.Response) bool { return resp.Header.Get(header) != "" }
