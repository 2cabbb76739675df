package memory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func TestSemaphore_Contract(t *testing.T) {
	limittest.Semaphore(t, memory.NewSemaphore(3), func(limit.Key, int64) {})
	assert.Panics(t, func() { memory.NewSemaphore(0) })
}
