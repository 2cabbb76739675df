package router_test

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type (
	valueKey   struct{}
	otherKey   struct{ n int }
	requestKey struct{}
)

// openConn returns a connection of a router without options.
func openConn(t *testing.T) *router.Conn {
	r := router.New(nil)
	routertest.Dial(t, r)
	require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
	return onlyConn(t, r)
}

func TestConn_GetReturnsWhatSetStored(t *testing.T) {
	c := openConn(t)
	assert.Nil(t, c.Get(valueKey{}))
	c.Set(valueKey{}, nil)
	assert.Nil(t, c.Get(valueKey{}))
	c.Set(valueKey{}, 1)
	c.Set(otherKey{1}, "one")
	c.Set(otherKey{2}, "two")
	c.Set(valueKey{}, 2)
	assert.Equal(t, 2, c.Get(valueKey{}))
	assert.Equal(t, "one", c.Get(otherKey{1}))
	assert.Equal(t, "two", c.Get(otherKey{2}))
	assert.Nil(t, c.Get(otherKey{3}))
	c.Set(otherKey{1}, nil)
	assert.Nil(t, c.Get(otherKey{1}))
	assert.Equal(t, "two", c.Get(otherKey{2}))
	assert.Nil(t, c.Context().Value(valueKey{}), "the context has only the values of ConnContext")
}

func TestConn_SetPanicsForInvalidKeys(t *testing.T) {
	c := openConn(t)
	assert.PanicsWithValue(t, "router: the key of Conn.Set is a <nil>; it must be comparable, such as a value of an empty struct type", func() { c.Set(nil, 1) })
	assert.PanicsWithValue(t, "router: the key of Conn.Set is a []int; it must be comparable, such as a value of an empty struct type", func() { c.Set([]int{1}, 1) })
	assert.PanicsWithValue(t, "router: the key of Conn.Get is a map[string]int; it must be comparable, such as a value of an empty struct type", func() { c.Get(map[string]int{}) })
}

func TestConn_SetIsSafeForConcurrentUse(t *testing.T) {
	c := openConn(t)
	const goroutines, each = 8, 5000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				c.Set(otherKey{g}, i)
				assert.Equal(t, i, c.Get(otherKey{g}))
			}
		})
	}
	wg.Wait()
	for g := range goroutines {
		assert.Equal(t, each-1, c.Get(otherKey{g}))
	}
}

func TestConn_GetWithoutValuesAllocatesNothing(t *testing.T) {
	c := openConn(t)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Get(valueKey{}) }))
	c.Set(valueKey{}, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Get(valueKey{}) }))
}

// TestConn_ValuesLastUntilOnClose sets a value in OnOpen and reads it everywhere.
func TestConn_ValuesLastUntilOnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[any]
		r := router.New(&router.Options{
			OnOpen:  func(_ context.Context, c *router.Conn) error { c.Set(valueKey{}, "opened"); return nil },
			OnClose: func(c *router.Conn, _ router.CloseError) { seen.add(c.Get(valueKey{})) },
		})
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			seen.add(ctx.Conn().Get(valueKey{}))
			ctx.Conn().Set(valueKey{}, "handled")
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.Send(Nothing{})
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		assert.Equal(t, []any{"opened", "handled"}, seen.all())
	})
}

// TestConnContext_ValuesReachHooksAndHandlers ends the context of the request, as net/http does when
// ServeHTTP returns.
func TestConnContext_ValuesReachHooksAndHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[any]
		r := router.New(&router.Options{
			ConnContext: func(req *http.Request) context.Context {
				ctx, cancel := context.WithTimeout(context.WithValue(req.Context(), requestKey{}, req.Header.Get("X-Request-Id")), time.Second)
				context.AfterFunc(t.Context(), cancel)
				return ctx
			},
			OnOpen: func(ctx context.Context, c *router.Conn) error {
				seen.add(ctx.Value(requestKey{}))
				seen.add(c.Context().Value(requestKey{}))
				return nil
			},
			OnClose: func(c *router.Conn, _ router.CloseError) { seen.add(c.Context().Value(requestKey{})) },
		})
		r.UseIngress(func(ctx context.Context, _ router.IngressContext) error {
			seen.add(ctx.Value(requestKey{}))
			return nil
		})
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			seen.add(ctx.Value(requestKey{}))
			return ctx.Err()
		})
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			seen.add(ctx.Value(requestKey{}))
			return Echoed(m), ctx.Err()
		})
		conn := routertest.Dial(t, r, routertest.Header("X-Request-Id", "7"))
		time.Sleep(2 * time.Second) // after the context of the request has ended
		conn.Send(Nothing{})
		assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
		_, hasDeadline := onlyConn(t, r).Context().Deadline()
		assert.False(t, hasDeadline)
		server := onlyConn(t, r)
		conn.Close()
		synctest.Wait()
		assert.Equal(t, []any{"7", "7", "7", "7", "7", "7", "7"}, seen.all())
		assert.ErrorIs(t, server.Context().Err(), context.Canceled)
	})
}

func TestConnContext_NilRejectsRequest(t *testing.T) {
	var failures []router.ErrorReport
	r := router.New(&router.Options{
		ConnContext: func(*http.Request) context.Context { return nil },
		OnError:     func(report router.ErrorReport) { failures = append(failures, report) },
		Limits:      router.Limits{Conns: 1},
	})
	for range 2 {
		assert.Equal(t, http.StatusInternalServerError, routertest.Refused(t, r).StatusCode)
	}
	require.Len(t, failures, 2)
	assert.EqualError(t, failures[0].Err, "router: Options.ConnContext returned nil; return req.Context() or context.Background() if there are no values")
}

// TestConnContext_IsCalledAfterAuthenticate checks that rejected requests do not reach it.
func TestConnContext_IsCalledAfterAuthenticate(t *testing.T) {
	r := router.New(discardLogs(router.Options{
		Authenticate: failingAuthenticate(errors.Errorf(errors.Unauthenticated, "log in first")),
		ConnContext:  func(*http.Request) context.Context { panic("called") },
	}))
	resp := routertest.Refused(t, r)
	var body bytes.Buffer
	_, err := body.ReadFrom(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, body.String(), "UNAUTHENTICATED")
}
