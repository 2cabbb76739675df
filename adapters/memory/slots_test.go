package memory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

func TestSlots(t *testing.T) {
	ratelimittest.Slots(t, memory.NewSlots(3), func(ratelimit.Key, int64) {})
	assert.Panics(t, func() { memory.NewSlots(0) })
}
