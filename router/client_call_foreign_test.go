package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestClientCall_WordsOfAClientReachNoOther has a handler that calls bob, and returns what he answers. Ann would take the
// code and the delay for those of the server.
func TestClientCall_WordsOfAClientReachNoOther(t *testing.T) {
	pass := map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("ask: %w", errors.Join(errors.New("first"), err)) },
		"replaced": func(err error) error { return &errors.Error{Code: "NO", Err: err} },
	}
	for _, code := range []errors.Code{errors.Unimplemented, errors.Unauthenticated, errors.ResourceExhausted, errors.Internal, "TEAPOT"} {
		said := &errors.Error{Code: code, Message: "secret", Details: map[string]any{"kind": "rate"}, RetryAfter: errors.Never}
		for name, pass := range pass {
			runSynctest(t, fmt.Sprint(code, "/", name), func(t *testing.T) {
				var reports recorder[error]
				r := router.New(discardLogs(router.Options{OnError: func(e router.ErrorReport) { reports.add(e.Err) }}))
				var called *router.Conn
				router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
					_, err := router.Call[Confirmed](ctx, called, Confirm{})
					return Echoed{}, pass(err)
				})
				bob, conn := dialConn(t, r)
				called = conn
				routertest.Handle(bob, func(Confirm) (Confirmed, error) { return Confirmed{}, said })
				want, own := &errors.Error{Code: errors.FailedPrecondition, Message: "another client has answered with an error"}, said
				if name == "replaced" {
					want = &errors.Error{Code: "NO"}
					own = want
				}
				assert.Equal(t, want, routertest.CallError(routertest.Dial(t, r), Echo{}))
				synctest.Wait()
				require.Len(t, reports.all(), 1, "the application learns what bob has answered")
				assert.ErrorContains(t, reports.all()[0], string(code))
				assert.Equal(t, own, routertest.CallError(bob, Echo{}), "bob may receive his own words")
			})
		}
	}
}
