//go:build !race

package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestMetrics_EventsAllocateNothing(t *testing.T) {
	m := New(prometheus.NewRegistry(), nil)
	for kind := router.EventOpened; kind <= router.EventSessionResumed; kind++ {
		e := router.Event{
			Kind: kind, Type: "ECHO", Code: errors.ResourceExhausted, Reason: "limit", Status: router.StatusTryAgainLater,
			Count: 3, Bytes: 100, Duration: time.Millisecond,
		}
		assert.Zero(t, testing.AllocsPerRun(1000, func() { m.observe(e) }), "kind %d", kind)
	}
}

func TestLimit_DecisionsAllocateNothing(t *testing.T) {
	m := New(prometheus.NewRegistry(), nil)
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1_000_000).Burst(600_000)), &ratelimit.Options{Name: "chat", Observe: m.Limit})
	in := router.IngressContext{Type: "SAY", Identity: router.Identity{UserID: "ann"}}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if err := admit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}))
}

// BenchmarkCall measures the events of one rate-limited call.
func BenchmarkCall(b *testing.B) {
	m := New(prometheus.NewRegistry(), nil)
	events := []router.Event{
		{Kind: router.EventRead, Bytes: 100},
		{Kind: router.EventStarted, Type: "ECHO"},
		{Kind: router.EventHandled, Type: "ECHO", Duration: time.Millisecond},
		{Kind: router.EventCompleted, Type: "ECHO"},
		{Kind: router.EventFinished, Type: "ECHO"},
		{Kind: router.EventWritten, Count: 1, Bytes: 100, Duration: time.Millisecond},
	}
	decision := observe.Observation{Limit: "chat", Kind: observe.Rate, Outcome: observe.Admitted, Called: true, Duration: time.Microsecond}
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range events {
			m.observe(e)
		}
		m.Limit(decision)
	}
}
