package router

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeadlineQueue_MatchesSortedList compares the heap with a list that is sorted after every step.
func TestDeadlineQueue_MatchesSortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now().Add(time.Hour) // nothing expires
	var q deadlineQueue
	var model []*Context
	newTimeout := func() time.Duration { return time.Duration(1+rng.IntN(100)) * time.Second }
	deadline := func(c *Context) time.Time { at, _ := c.Deadline(); return at }
	for step := range 20_000 {
		switch n := rng.IntN(10); {
		case n < 4 && len(model) < 100 || len(model) == 0:
			c := &Context{receivedAt: start}
			c.call.timeout = newTimeout()
			q.add(c)
			model = append(model, c)
		case n < 8:
			i := rng.IntN(len(model))
			assert.True(t, q.remove(model[i]))
			assert.False(t, q.remove(model[i]))
			model = slices.Delete(model, i, i+1)
		default:
			c := model[rng.IntN(len(model))]
			q.remove(c)
			c.call.timeout = newTimeout()
			q.add(c)
		}
		require.Len(t, q.calls, len(model))
		if len(model) > 0 {
			first := slices.MinFunc(model, func(a, b *Context) int { return deadline(a).Compare(deadline(b)) })
			require.True(t, deadline(first).Equal(q.calls[0].deadline))
		}
		if step%100 > 0 {
			continue
		}
		for i, c := range q.calls {
			require.EqualValues(t, i+1, c.call.place)
		}
	}
	q.timer.Stop()
	q.add(&Context{}) // without a deadline
	assert.Len(t, q.calls, len(model))
}
