package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// reports are what the hooks of a router have received.
type reports struct {
	errs   []error
	limits []router.LimitExceeded // later than the ingress function returns
}

// reporting returns an IngressContext like in of a connection whose router records reports.
func reporting(t *testing.T, in router.IngressContext) (router.IngressContext, *reports) {
	t.Helper()
	seen, conns := &reports{}, []*router.Conn(nil)
	r := router.New(&router.Options{
		OnError:         func(e router.ErrorReport) { seen.errs = append(seen.errs, e.Err) },
		OnLimitExceeded: func(l router.LimitExceeded) { seen.limits = append(seen.limits, l) },
	})
	routertest.Dial(t, r)
	for c := range r.Conns() {
		conns = append(conns, c)
	}
	require.Len(t, conns, 1)
	reported := conns[0].Ingress()
	reported.Type, reported.IP, reported.Identity, reported.Size, reported.ReceivedAt = in.Type, in.IP, in.Identity, in.Size, in.ReceivedAt
	return reported, seen
}
