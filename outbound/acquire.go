package outbound

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// An acquiredLimit is one request to a route or to another limit. The route comes first.
type acquiredLimit struct {
	name  string
	grant Grant
}

// tryAcquire acquires one request to a route and to its other limits, or returns how long to
// wait and acquires nothing.
func (t *Transport) tryAcquire(ctx context.Context, route string) ([]acquiredLimit, time.Duration, error) {
	grant, err := t.budget.TryAcquire(ctx, route)
	if err != nil || grant.Wait > 0 {
		return nil, grant.Wait, err
	}
	acquired := []acquiredLimit{{route, grant}}
	for _, name := range t.limits.of(route) {
		grant, err := t.budget.TryAcquireShared(ctx, name)
		if err != nil || grant.Wait > 0 {
			t.giveBack(ctx, acquired)
			return nil, grant.Wait, err
		}
		acquired = append(acquired, acquiredLimit{name, grant})
	}
	return acquired, 0, nil
}

// giveBack returns requests that are not sent.
func (t *Transport) giveBack(ctx context.Context, acquired []acquiredLimit) {
	for _, a := range acquired {
		t.update(ctx, a.name, a.grant, Status{Unsent: true})
	}
}

// record runs before the caller gets the response, so that the caller's next request already
// sees the new status.
func (t *Transport) record(req *http.Request, acquired []acquiredLimit, resp *response) {
	ctx := req.Context()
	route := acquired[0]
	own, others := t.limits.learn(route.name, req, resp)
	t.update(ctx, route.name, route.grant, own)
	for _, a := range acquired[1:] {
		t.update(ctx, a.name, a.grant, others[a.name]) // the zero Status if the response does not name it
		delete(others, a.name)
	}
	for name, status := range others {
		t.recordNew(ctx, name, status)
	}
}

// recordNew counts an answered request against a limit that only its response has named. If the
// budget permits none, other requests have reported the limit's status.
func (t *Transport) recordNew(ctx context.Context, name string, status Status) {
	timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), updateTimeout)
	defer cancel()
	grant, err := t.budget.TryAcquireShared(timeout, name)
	switch {
	case err != nil:
		t.reportLost(name, err)
	case grant.Wait == 0:
		t.update(ctx, name, grant, status)
	}
}

// update ignores the end of ctx: the status is valid even if the caller has given up.
func (t *Transport) update(ctx context.Context, name string, grant Grant, status Status) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), updateTimeout)
	defer cancel()
	if err := t.budget.Update(ctx, name, grant, status); err != nil {
		t.reportLost(name, err)
	}
}

func (t *Transport) reportLost(name string, err error) {
	if t.options.OnError != nil {
		t.options.OnError(fmt.Errorf("outbound: rate limit status of route %q is lost: %w", name, err))
	}
}
