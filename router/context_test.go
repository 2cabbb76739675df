package router_test

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
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

type spanKey struct{}

// inSpan is a middleware that derives the context of the message.
func inSpan(derive func(context.Context) context.Context) router.Middleware {
	return func(next router.Handler) router.Handler {
		return func(ctx *router.Context) error { return next(ctx.WithContext(derive(ctx))) }
	}
}

func withSpan(ctx context.Context) context.Context { return context.WithValue(ctx, spanKey{}, "span") }

// TestWithContext_SharesTheStateOfTheMessage uses everything that a Context has in handlers behind two
// middlewares, of which the second one derives the context again.
func TestWithContext_SharesTheStateOfTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		var outer *router.Context
		r.Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				ctx.SetValue("before", 1)
				outer = ctx
				return next(ctx)
			}
		}, inSpan(withSpan), func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				derived := ctx.WithContext(context.WithValue(ctx, "inner", 2)) //nolint:staticcheck // a test
				derived.SetValue("set", 3)
				err := next(derived)
				if ctx.Reply() != nil {
					assert.Equal(t, ctx.Reply(), derived.Reply())
				}
				return err
			}
		})
		check := func(ctx *router.Context) {
			assert.Equal(t, []any{1, "span", 2, 3}, []any{ctx.Value("before"), ctx.Value(spanKey{}), ctx.Value("inner"), ctx.Value("set")})
			assert.Nil(t, outer.Value(spanKey{}), "the original is as it was")
			assert.Equal(t, outer.CorrelationID(), ctx.CorrelationID())
			assert.Equal(t, outer.ReceivedAt(), ctx.ReceivedAt())
			assert.EqualExportedValues(t, outer.Ingress(), ctx.Ingress())
			assert.Equal(t, outer.Message(), ctx.Message())
		}
		router.On(r, func(ctx *router.Context, m Nothing) error {
			check(ctx)
			return ctx.Publish("none", m)
		})
		router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) {
			check(ctx)
			return m, ctx.Progress(m.N)
		})
		router.Stream(r, func(ctx *router.Context, m Blob) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				check(ctx)
				_ = yield(m.N, nil)
				ctx.SetReply(Quote{N: m.N})
			}
		})
		client := routertest.Dial(t, r)
		client.Send(Nothing{})
		assert.Equal(t, Quote{N: 4}, routertest.Call[Quote](client, Quote{N: 4}))
		assert.Contains(t, client.Next().Text, `"payload":4`, "the progress of the call")
		client.SendText(`{"type":"BLOB","meta":{"correlationId":"s"},"payload":{"n":5}}`)
		assert.Contains(t, client.Next().Text, `"payload":5`)
		assert.Contains(t, client.Next().Text, `"n":5`)
	})
}

// TestWithContext_DeadlineOfMiddleware ends handlers earlier than the call, and never later.
func TestWithContext_DeadlineOfMiddleware(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout time.Duration
		want    errors.Code
		after   time.Duration
	}{
		"earlier": {time.Second, errors.Aborted, time.Second},
		"later":   {time.Hour, errors.DeadlineExceeded, 5 * time.Second},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{Timeouts: router.Timeouts{Call: 5 * time.Second}})
			r.Use(func(next router.Handler) router.Handler {
				return func(ctx *router.Context) error {
					shorter, cancel := context.WithTimeout(ctx, tt.timeout)
					defer cancel()
					return next(ctx.WithContext(shorter))
				}
			})
			router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) {
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.Equal(t, tt.after, time.Until(deadline))
				<-ctx.Done()
				require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				time.Sleep(time.Millisecond) // the deadline of the call, if it is the same, answers first
				return m, errors.Errorf(errors.Aborted, "the handler has waited for long enough")
			})
			client, start := routertest.Dial(t, r), time.Now()
			assert.Equal(t, tt.want, routertest.CallError(client, Quote{}).Code)
			assert.InDelta(t, tt.after.Seconds(), time.Since(start).Seconds(), 0.0011)
			time.Sleep(2 * time.Millisecond) // until the handler has returned
		})
	}
}

// TestWithContext_ReachesTheStore publishes in a derived context.
func TestWithContext_ReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got any
		b := &unreliableBroker{Broker: memory.NewBroker(), append: func(ctx context.Context, a broker.Append, node broker.HistoryNode) (broker.Appended, error) {
			got = ctx.Value(spanKey{})
			return node.Append(ctx, a)
		}}
		r := router.New(&router.Options{Broker: b})
		router.Topic(r, "kept", &router.TopicOptions{History: router.History{Messages: 1}})
		r.Use(inSpan(withSpan))
		router.RPC(r, func(ctx *router.Context, m Quote) (Quote, error) { return m, ctx.Publish("kept", m) })
		routertest.Call[Quote](routertest.Dial(t, r), Quote{})
		assert.Equal(t, "span", got)
	})
}

func TestWithContext_PanicsWithoutContext(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	r.Use(inSpan(func(context.Context) context.Context { return nil }))
	router.RPC(r, func(_ *router.Context, m Quote) (Quote, error) { return m, nil })
	assert.Equal(t, errors.Internal, routertest.CallError(routertest.Dial(t, r), Quote{}).Code)
}
