package report

import (
	"context"

	"github.com/penstock-go/penstock/tracing"
)

// A Tracer calls a [tracing.Tracer]. Without one, only Inject may be called.
type Tracer struct {
	tracing.Tracer // nil if nothing is traced

	Panicked func(value any) // may be called under locks of a broker
}

// IsOn reports whether there is a tracer.
func (t *Tracer) IsOn() bool { return t.Tracer != nil }

// Start returns ctx with a span. It returns ctx and false if the operation has none.
func (t *Tracer) Start(ctx context.Context, op tracing.Operation) (started context.Context, traced bool) {
	t.guard(func() { started = t.Tracer.Start(ctx, op) })
	if started == nil {
		return ctx, false
	}
	return started, true
}

// End ends the span of a context that Start has returned.
func (t *Tracer) End(ctx context.Context, result tracing.Result) {
	t.guard(func() { t.Tracer.End(ctx, result) })
}

// Inject returns the trace context of the span in ctx, for another process. Without a tracer, it is
// the zero one.
func (t *Tracer) Inject(ctx context.Context) (trace tracing.TraceContext) {
	if t.Tracer != nil {
		t.guard(func() { trace = t.Tracer.Inject(ctx) })
	}
	return trace
}

func (t *Tracer) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			t.Panicked(v)
		}
	}()
	f()
}
