package internal_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

// runDo calls Do on a goroutine of its own, and returns what has happened.
func runDo(f func()) (events []string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				events = append(events, "panicked")
			}
		}()
		executor.Do(f, func() { events = append(events, "exited") })
		events = append(events, "returned")
	})
	wg.Wait()
	return events
}

func TestDo_CallsExitedOnlyAfterGoexit(t *testing.T) {
	assert.Equal(t, []string{"returned"}, runDo(func() {}))
	assert.Equal(t, []string{"exited"}, runDo(runtime.Goexit))
	assert.Equal(t, []string{"panicked"}, runDo(func() { panic("fault") }))
	assert.Equal(t, []string{"exited"}, runDo(func() {
		defer func() {
			if recover() != nil {
				runtime.Goexit()
			}
		}()
		panic("fault")
	}), "a recovered panic is no panic of f")
	assert.Equal(t, []string{"exited"}, runDo(func() {
		executor.Do(runtime.Goexit, runtime.Goexit)
	}), "exited may exit, too")
}

func TestDo_AllocatesNothing(t *testing.T) {
	n := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() { executor.Do(func() { n++ }, func() { n-- }) }))
}
