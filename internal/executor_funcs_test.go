package internal_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/executor"
)

func TestFuncQueue_RunsFunctionsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q executor.FuncQueue
		var j journal
		release := make(chan struct{})
		q.Add(j.block(0, release))
		synctest.Wait()
		q.Add(j.block(1, release))
		q.Add(j.entry(2))
		synctest.Wait()
		assert.Equal(t, []int{0}, j.all())
		close(release)
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2}, j.all())
		q.Add(j.entry(3)) // the goroutine has ended meanwhile
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3}, j.all())
	})
}

func TestFuncQueue_GoexitDoesNotStopTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q executor.FuncQueue
		var j journal
		release := make(chan struct{})
		q.Add(func() { <-release })
		q.Add(j.entry(1)) // these four are taken together
		q.Add(runtime.Goexit)
		q.Add(runtime.Goexit)
		q.Add(j.entry(2))
		close(release)
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, j.all())
		q.Add(runtime.Goexit)
		synctest.Wait()
		q.Add(j.entry(3))
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 3}, j.all())
	})
}
