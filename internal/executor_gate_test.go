package internal_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

func TestGate_CloseWaitsForFunctions(t *testing.T) {
	var g executor.Gate
	var returned atomic.Int32
	inside, leave := make(chan struct{}), make(chan struct{})
	for range 2 {
		go g.Do(func() {
			inside <- struct{}{}
			<-leave
			returned.Add(1)
		})
	}
	<-inside
	<-inside // both run at the same time
	go close(leave)
	g.Close()
	assert.EqualValues(t, 2, returned.Load())
	assert.False(t, g.Do(func() { assert.Fail(t, "the gate is closed") }))
	g.Close()
}

func TestGate_SurvivesPanics(t *testing.T) {
	var g executor.Gate
	assert.Panics(t, func() { g.Do(func() { panic("a defect") }) })
	g.Close()
}

// TestGate_NothingRunsAfterClose closes a gate while others use it.
func TestGate_NothingRunsAfterClose(t *testing.T) {
	for range 100 {
		var g executor.Gate
		var closed atomic.Bool
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for g.Do(func() { assert.False(t, closed.Load()) }) {
				}
			})
		}
		g.Close()
		closed.Store(true)
		users.Wait()
	}
}
