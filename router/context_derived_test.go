package router_test

import (
	"context"
	"iter"
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
			assert.Equal(t, outer.Ingress(), ctx.Ingress())
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
