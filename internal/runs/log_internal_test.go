package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/host"
)

// A failingOver store fails over after its first page, and keeps 100 of 300 entries, which are followed by others.
type failingOver struct {
	broker.Histories
	reads int
}

func (f *failingOver) Read(_ context.Context, q broker.Query) (page broker.Page, _ error) {
	page.Position, page.Closed = broker.Position{Epoch: "a", Offset: 300}, false
	first := "before"
	if f.reads++; f.reads > 1 {
		page.Position.Epoch, page.Closed = "b", true
		page.Previous = broker.Position{Epoch: "a", Offset: 100}
		first = "after"
	}
	for n := q.After; n < page.Position.Offset && len(page.Publications) < q.Limit; n++ {
		item := json.RawMessage(fmt.Sprintf("%q", first))
		if n < 100 {
			item = json.RawMessage(`"kept"`)
		}
		page.Publications = append(page.Publications, broker.Publication{
			Position: broker.Position{Epoch: page.Position.Epoch, Offset: n + 1}, Packet: encode(entry{First: n, Items: []json.RawMessage{item}}),
		})
	}
	return page, nil
}

func TestRuns_ALogThatFailsOverWhileItIsReadIsReadAgain(t *testing.T) {
	store := &failingOver{}
	r := New(Config{Host: host.Host{Histories: store, OnShutdown: func(host.Shutdown) {}}})
	state, err := r.stateOf(t.Context(), "topic", "id", func(raw json.RawMessage) (any, error) { return string(raw), nil })
	require.NoError(t, err)
	require.Len(t, state.items, 300)
	assert.Equal(t, []any{`"kept"`, `"after"`}, state.items[99:101], "what is lost does not count")
	assert.NotContains(t, state.items, `"before"`)
	assert.EqualValues(t, 300, state.count)
	assert.Equal(t, "b", state.epoch)
	assert.True(t, state.closed)
}
