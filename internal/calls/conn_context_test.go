package calls_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
)

var errConnClosed = errors.New("closed")

func TestConnContext_IsLikeOthers(t *testing.T) {
	type key struct{}
	newContext := func() *calls.ConnContext {
		return &calls.ConnContext{Values: context.WithValue(t.Context(), key{}, "value")}
	}
	for name, use := range map[string]func(*calls.ConnContext){
		"canceled before it is used": func(*calls.ConnContext) {},
		"used before":                func(c *calls.ConnContext) { c.Done() },
		"its values used before":     func(c *calls.ConnContext) { c.Value(key{}) },
	} {
		c := newContext()
		use(c)
		_, ok := c.Deadline()
		require.False(t, ok, name)
		require.NoError(t, c.Err(), name)
		require.NoError(t, context.Cause(c), name)
		assert.Equal(t, "value", c.Value(key{}), name)
		c.Cancel(errConnClosed)
		c.Cancel(errors.New("later"))
		assert.Equal(t, context.Canceled, c.Err(), name)
		assert.Equal(t, errConnClosed, context.Cause(c), name)
		assert.Equal(t, "value", c.Value(key{}), name)
		<-c.Done()
		derived, cancel := context.WithCancel(c)
		assert.Equal(t, errConnClosed, context.Cause(derived), name)
		cancel()
	}
}

func TestConnContext_CancelsDerivedContextsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls.ConnContext{Values: context.Background()}
		derived, cancel := context.WithTimeout(c, time.Hour)
		defer cancel()
		value := context.WithValue(derived, errConnClosed, 1)
		called := false
		context.AfterFunc(c, func() { called = true })
		c.Cancel(errConnClosed)
		assert.Equal(t, errConnClosed, context.Cause(value), "at once, as package context cancels what it knows")
		synctest.Wait()
		assert.True(t, called)
	})
}

func TestConnContext_IsUsedAndCanceledAtOnce(t *testing.T) {
	for range 200 {
		c := &calls.ConnContext{Values: context.Background()}
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() { <-c.Done(); assert.Equal(t, errConnClosed, context.Cause(c)) })
		}
		users.Go(func() { c.Cancel(errConnClosed) })
		users.Wait()
	}
}

func TestConnContext_NeedsNoMemoryUntilUsed(t *testing.T) {
	var kept [100]calls.ConnContext
	i := 0
	assert.Zero(t, testing.AllocsPerRun(50, func() {
		c := &kept[i]
		i++
		c.Values = context.Background()
		var ctx context.Context = c
		if ctx.Err() != nil {
			t.Error("canceled")
		}
	}))
}
