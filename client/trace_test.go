//go:build !js

package client_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/tracing"
)

type traceKey struct{}

// A wordTracer has one word as the trace context of everything, and records those of clients.
type wordTracer struct {
	mu     sync.Mutex
	remote map[string]tracing.TraceContext // by type
}

func (w *wordTracer) Start(_ context.Context, op tracing.Operation) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remote[fmt.Sprint(op.Kind, op.Type)] = op.Remote
	return nil
}
func (*wordTracer) End(context.Context, tracing.Result) {}
func (*wordTracer) Inject(context.Context) tracing.TraceContext {
	return tracing.TraceContext{Parent: "of the server", State: "s"}
}

// TestTrace_BothDirections makes calls, streams and events, and answers calls of the server.
func TestTrace_BothDirections(t *testing.T) {
	for name, on := range map[string]bool{"with options": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			tracer := &wordTracer{remote: map[string]tracing.TraceContext{}}
			s := startServer(t, &router.Options{Tracer: tracer})
			r := s.Router
			said := make(chan struct{})
			router.On(r, func(*router.Context, say) error { close(said); return nil })
			router.Stream(r, func(*router.Context, count) iter.Seq2[row, error] { return func(func(row, error) bool) {} })
			router.RPC(r, func(ctx *router.Context, m add) (sum, error) { return router.Call[sum](ctx, ctx.Conn(), m) })
			opts := client.Options{}
			if on {
				opts.InjectTrace = func(ctx context.Context) tracing.TraceContext {
					return tracing.TraceContext{Parent: ctx.Value(traceKey{}).(string)}
				}
				opts.ExtractTrace = func(ctx context.Context, t tracing.TraceContext) context.Context {
					return context.WithValue(ctx, traceKey{}, t.Parent+"/"+t.State)
				}
			}
			s.start()
			c := s.connect(&opts)
			extracted := make(chan any, 1)
			client.Handle(c, func(ctx context.Context, m add) (sum, error) {
				extracted <- ctx.Value(traceKey{})
				return sum{m.A + m.B}, nil
			})
			of := func(typ string) context.Context { return context.WithValue(t.Context(), traceKey{}, "of "+typ) }
			_, err := client.Call[sum](of("ADD"), c, add{1, 2})
			require.NoError(t, err)
			require.NoError(t, client.Send(of("SAY"), c, say{}))
			<-said
			for _, err := range client.Stream[row](of("COUNT"), c, count{}) {
				require.NoError(t, err)
			}
			tracer.mu.Lock()
			defer tracer.mu.Unlock()
			for _, typ := range []string{"ADD", "SAY", "COUNT"} {
				want := tracing.TraceContext{}
				if on {
					want.Parent = "of " + typ
				}
				assert.Equal(t, want, tracer.remote[fmt.Sprint(tracing.Message, typ)], typ)
			}
			if on {
				assert.Equal(t, "of the server/s", <-extracted)
			} else {
				assert.Nil(t, <-extracted)
			}
		})
	}
}
