package memstore_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/memstore"
)

// TestNode_CloseDuringUse closes a node while it publishes, follows and receives.
func TestNode_CloseDuringUse(t *testing.T) {
	for range 50 {
		var hub memstore.Hub
		var calls, stored, rejected atomic.Int64
		handler := broker.HistoryCallbacks{
			Published: func(string, broker.Publication) { calls.Add(1) },
			Following: func(string) { calls.Add(1) },
		}
		n := hub.Connect(handler)
		n.Follow("news")
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for rejected.Load() < 4 {
					_, err := n.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Messages: 5}})
					if err == nil {
						stored.Add(1)
					} else if assert.Equal(t, errors.Unavailable, errors.CodeOf(err)) {
						rejected.Add(1)
					}
					n.Unfollow("other")
					n.Follow("other")
				}
			})
		}
		for stored.Load() < 10 {
			n.Follow("more")
		}
		require.NoError(t, n.Close(t.Context()))
		before, storedBefore := calls.Load(), stored.Load()
		users.Wait()
		other := hub.Connect(broker.HistoryCallbacks{})
		page, err := other.Read(t.Context(), broker.Query{Topic: "news"})
		require.NoError(t, err)
		assert.Equal(t, before, calls.Load(), "calls of the handler after Close")
		assert.Equal(t, uint64(stored.Load()), page.Position.Offset)
		assert.LessOrEqual(t, stored.Load()-storedBefore, int64(4), "publications that were stored when Close returned, but not counted yet")
	}
}
