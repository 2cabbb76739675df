package calls_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/calls"
)

// A message contains a call.
type message struct {
	call calls.Call[message]
}

// newMessage returns a message that is a call with an ID.
func newMessage(id string) *message {
	m := &message{call: calls.Call[message]{ID: id}}
	m.call.Of = m
	return m
}

// TestIndex_HasTheOpenCalls adds and settles random calls, of which some have no ID and some that of
// another, and compares the index with a list. Their number crosses the one from which there is a map.
func TestIndex_HasTheOpenCalls(t *testing.T) {
	var index calls.Index[message]
	var open []*message
	find := func(id string) *message {
		i := slices.IndexFunc(open, func(m *message) bool { return m.call.ID == id })
		if id == "" || i < 0 {
			return nil
		}
		return open[i]
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 4000 {
		id := ""
		if n := rng.IntN(50); n > 0 {
			id = fmt.Sprint(n)
		}
		if grows := step%400 < 200; grows == (rng.IntN(4) > 0) {
			m := newMessage(id)
			require.Equal(t, find(id) == nil, index.Add(&m.call), "step %d: duplicates are rejected", step)
			if find(id) == nil {
				open = append(open, m)
			}
		} else if len(open) > 0 {
			i := rng.IntN(len(open))
			m := open[i]
			open = slices.Delete(open, i, i+1)
			require.True(t, index.Settle(&m.call))
			require.False(t, index.Settle(&m.call), "a call has one answer")
		}
		var all []*message
		for _, k := range index.All() {
			all = append(all, k.Of)
		}
		require.ElementsMatch(t, open, all, "step %d", step)
		id = fmt.Sprint(rng.IntN(50))
		if want, found := find(id), index.Find(id); want == nil {
			require.Nil(t, found, "step %d", step)
		} else {
			require.Same(t, &want.call, found, "step %d", step)
		}
	}
}

func TestIndex_CountsCallsUpToTheLimit(t *testing.T) {
	var index calls.Index[message]
	start := func(limit int, wantRunning int64, wantOK bool) {
		t.Helper()
		running, ok := index.Start(limit)
		assert.Equal(t, wantRunning, running)
		assert.Equal(t, wantOK, ok)
	}
	start(0, 1, false)
	start(2, 1, true)
	start(2, 2, true)
	start(2, 3, false)
	start(2, 3, false) // what is rejected is not counted
	index.Finish()
	start(2, 2, true)
}
