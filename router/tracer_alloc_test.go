package router_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
)

// leastAllocs returns the allocations of one call of f. Other goroutines, and pools that are emptied,
// only add to them.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 200 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// TestTracer_NoneAllocatesNothing counts what messages with and without a trace context, and a
// publication, allocate. The numbers are those of a router without the option.
func TestTracer_NoneAllocatesNothing(t *testing.T) {
	const (
		plain    = `{"type":"ECHO","meta":{"correlationId":"b7c1"},"payload":{"n":7}}`
		ofClient = `{"type":"ECHO","meta":{"correlationId":"b7c1","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"a=b"},"payload":{"n":7}}`
	)
	r := router.New(&router.Options{Limits: rarelyReached()})
	router.RPC(r, echo)
	router.On(r, func(*router.Context, Note) error { return nil })
	conn := connectNowhere(t, r)
	receive := func(text string) func() {
		message := []byte(text)
		return func() { router.Receive(conn, message) }
	}
	for name, tt := range map[string]struct {
		f    func()
		most float64
	}{
		"call":                      {receive(plain), 2},
		"call with a trace context": {receive(ofClient), 2},
		"event":                     {receive(`{"type":"NOTE","payload":{"text":"a"}}`), 1},
		"publication":               {func() { _ = r.Publish("rooms/7", Nothing{}) }, 0},
	} {
		assert.Equal(t, tt.most, leastAllocs(tt.f), name)
	}
}
