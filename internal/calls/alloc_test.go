//go:build !race

package calls_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/calls"
)

// TestIndex_CallsAllocateNothing handles calls whose context is not used. The race detector adds
// allocations.
func TestIndex_CallsAllocateNothing(t *testing.T) {
	index := calls.Index[message]{Deadlines: &calls.Deadlines[message]{Base: time.Now()}}
	m := newMessage("a")
	m.call.ReceivedAt, m.call.Timeout = time.Now(), time.Hour
	index.Watch(&m.call) // adds the connection to the queue of deadlines
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.call.Answered.Store(false)
		index.Watch(&m.call)
		index.Add(&m.call)
		index.Settle(&m.call)
		m.call.End(returned)
	}))
	index.Stop()
}
