//go:build !race

package metrics

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	limitobserve "github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

func TestMetrics_EventsAllocateNothing(t *testing.T) {
	m := New(prometheus.NewRegistry(), nil)
	for kind := observe.Opened; kind <= observe.SessionResumed; kind++ {
		e := observe.Event{
			Kind: kind, Type: "ECHO", Code: errors.ResourceExhausted, Reason: "limit", Status: int(router.StatusTryAgainLater),
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
	events := []observe.Event{
		{Kind: observe.Read, Bytes: 100},
		{Kind: observe.Started, Type: "ECHO"},
		{Kind: observe.Handled, Type: "ECHO", Duration: time.Millisecond},
		{Kind: observe.Completed, Type: "ECHO"},
		{Kind: observe.Finished, Type: "ECHO"},
		{Kind: observe.Written, Count: 1, Bytes: 100, Duration: time.Millisecond},
	}
	decision := limitobserve.Observation{Limit: "chat", Kind: limitobserve.Rate, Outcome: limitobserve.Admitted, Called: true, Duration: time.Microsecond}
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range events {
			m.observe(e)
		}
		m.Limit(decision)
	}
}

// TestLimitNames_HaveEachOption looks for the fields of Limits. Others would be counted as other.
func TestLimitNames_HaveEachOption(t *testing.T) {
	for field := range reflect.TypeFor[router.Limits]().Fields() {
		if name := "router.Limits." + field.Name; field.Name != "SessionsPerUser" { // which ends sessions, and refuses nothing
			assert.Equal(t, name, limitName(name))
		}
	}
	assert.Equal(t, other, limitName("of the application"))
}
