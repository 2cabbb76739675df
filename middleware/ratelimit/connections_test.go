package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// nodeErrors counts the errors that nodes have reported.
var nodeErrors atomic.Int64

// newNode returns a router that answers RENDER and opens connections with onOpen. The token of a
// client is its user.
func newNode(onOpen func(context.Context, *router.Conn) error) *router.Router {
	r := router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
		OnOpen:  onOpen,
		OnError: func(e router.ErrorReport) { nodeErrors.Add(1) },
	})
	router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil })
	return r
}

func dialAs(t *testing.T, node *router.Router, user string) *routertest.Conn {
	t.Helper()
	return routertest.Dial(t, node, routertest.Token(user))
}

var (
	tooManyConnections = router.CloseError{Code: router.StatusTryAgainLater, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"too many connections"}`}
	undecided          = router.CloseError{Code: router.StatusTryAgainLater, Reason: `{"code":"UNAVAILABLE","message":"limits cannot be checked"}`}
)

func TestConnections_BoundUserOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		semaphore := memory.NewSemaphore(3)
		one, two := newNode(ratelimit.Connections(semaphore, nil)), newNode(ratelimit.Connections(semaphore, nil))
		ann := []*routertest.Conn{dialAs(t, one, "ann"), dialAs(t, two, "ann"), dialAs(t, two, "ann")}
		for _, conn := range ann {
			routertest.Call[Rendered](conn, Render{})
		}
		for _, node := range []*router.Router{one, two, one} { // a rejected connection takes no permit
			assert.Equal(t, tooManyConnections, dialAs(t, node, "ann").Closed())
		}
		routertest.Call[Rendered](dialAs(t, one, "bob"), Render{})

		ann[0].Close()
		ann[1].Abort()
		synctest.Wait()
		routertest.Call[Rendered](dialAs(t, two, "ann"), Render{})
		routertest.Call[Rendered](dialAs(t, one, "ann"), Render{})
		assert.Equal(t, tooManyConnections, dialAs(t, two, "ann").Closed())
	})
}

// TestConnections_RefusalNamesThePolicy refuses a connection, whose client does not learn the policy.
func TestConnections_RefusalNamesThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits, refusals []string
		r := router.New(&router.Options{
			OnOpen:          ratelimit.Connections(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{Name: "sockets"}),
			OnLimitExceeded: func(l router.LimitExceeded) { limits = append(limits, l.Error()) },
			OnRefused:       func(r router.Refusal) { refusals = append(refusals, r.Reason+" "+r.Err.Error()) },
		})
		routertest.Dial(t, r)
		synctest.Wait()
		assert.Equal(t, tooManyConnections, routertest.Dial(t, r).Closed())
		synctest.Wait()
		const want = `connections limit exceeded: 2 of 1, policy "sockets"`
		assert.Equal(t, []string{want}, limits)
		assert.Equal(t, []string{"on_open " + want}, refusals)
	})
}

// A permit of a connection that a later part of OnOpen rejects is released.
func TestConnections_RejectionByComposedOnOpenReleasesPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limitConns := ratelimit.Connections(memory.NewSemaphore(1), nil)
		isBanned := true
		r := newNode(func(ctx context.Context, c *router.Conn) error {
			if err := limitConns(ctx, c); err != nil {
				return err
			}
			if isBanned {
				return &router.CloseError{Code: 4403, Reason: "banned"}
			}
			return nil
		})
		for range 3 {
			assert.Equal(t, router.CloseError{Code: 4403, Reason: "banned"}, dialAs(t, r, "ann").Closed())
			synctest.Wait()
		}
		isBanned = false
		routertest.Call[Rendered](dialAs(t, r, "ann"), Render{})
	})
}

func TestConnections_ObserveReceivesEveryDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outcomes []observe.Outcome
		r := newNode(ratelimit.Connections(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{
			Name: "connections",
			Key: func(in router.IngressContext) limit.Key {
				assert.NotEmpty(t, in.ConnID)
				assert.Equal(t, time.Now(), in.ReceivedAt)
				return limit.Key{"tenant", in.Identity.TenantID}
			},
			Observe: func(o observe.Observation) {
				assert.Equal(t, "connections", o.Limit)
				assert.Equal(t, observe.Connections, o.Kind)
				assert.True(t, o.Called)
				outcomes = append(outcomes, o.Outcome)
			},
		}))
		routertest.Call[Rendered](dialAs(t, r, "ann"), Render{})
		assert.Equal(t, tooManyConnections, dialAs(t, r, "bob").Closed())
		assert.Equal(t, []observe.Outcome{observe.Admitted, observe.Rejected}, outcomes)
	})
}

func TestConnections_OutageAppliesFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		down := semaphoreFunc(func(context.Context) (limit.Permit, error) {
			calls++
			return limit.Permit{}, io.ErrUnexpectedEOF
		})
		var outcomes []observe.Outcome
		before := nodeErrors.Load()
		failClosed := newNode(ratelimit.Connections(down, &ratelimit.ConcurrencyOptions{
			Observe: func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
		}))
		for range 10 {
			assert.Equal(t, undecided, dialAs(t, failClosed, "ann").Closed())
		}
		assert.EqualValues(t, 10, nodeErrors.Load()-before)
		assert.Equal(t, 5, calls, "then the breaker is open")
		assert.Len(t, outcomes, 11)
		assert.Contains(t, outcomes, observe.BreakerOpened)
		failOpen := newNode(ratelimit.Connections(down, &ratelimit.ConcurrencyOptions{FailOpen: true}))
		for range 10 {
			routertest.Call[Rendered](dialAs(t, failOpen, "ann"), Render{})
		}
	})
}

func TestConnections_SlowSemaphoreIsBoundedByTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := semaphoreFunc(func(ctx context.Context) (limit.Permit, error) {
			<-ctx.Done()
			return limit.Permit{}, ctx.Err()
		})
		start := time.Now()
		r := newNode(ratelimit.Connections(slow, &ratelimit.ConcurrencyOptions{Timeout: 70 * time.Millisecond}))
		assert.Equal(t, undecided, dialAs(t, r, "ann").Closed())
		assert.Equal(t, 70*time.Millisecond, time.Since(start))
	})
	assert.PanicsWithValue(t, "ratelimit: Connections needs a semaphore", func() { ratelimit.Connections(nil, nil) })
	assert.Panics(t, func() { ratelimit.Connections(memory.NewSemaphore(1), &ratelimit.ConcurrencyOptions{Timeout: -1}) })
}
