package topic

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/protocol"
)

// TestPresenceFeed_KeepsOnlyChangesThatAreNeeded checks that the changes of a busy topic do not
// pile up.
func TestPresenceFeed_KeepsOnlyChangesThatAreNeeded(t *testing.T) {
	held, fast := &watcher{next: 12, held: true}, &watcher{next: 15}
	f := &feed{first: 10, changes: make([]change, 5), watchers: map[*Subscriber]*watcher{{}: held, {}: fast}}
	f.changes[2].member.ConnID = "12"
	assert.False(t, f.trim(), "nothing can be sent")
	assert.Equal(t, uint64(12), f.first)
	assert.Len(t, f.changes, 3)
	assert.Equal(t, "12", f.changes[12-f.first].member.ConnID)
	held.held = false
	assert.True(t, f.trim())
	held.next = 15
	assert.False(t, f.trim())
	assert.Empty(t, f.changes)
	assert.Equal(t, uint64(15), f.end())
}

// TestPresenceFeed_RepeatedJoinsDoNotPileUp lets 100 members join and leave much more often than
// batches are sent. Their number does not grow, so few batches must suffice.
func TestPresenceFeed_RepeatedJoinsDoNotPileUp(t *testing.T) {
	f := &feed{}
	var ts Topics
	ts.config.Formats = new(envelope.Formats)
	topic := &Topic{Name: "room/go", presence: &presence{feed: f}}
	c, w := &Subscriber{}, &watcher{}
	f.watchers = map[*Subscriber]*watcher{c: w}
	for n := range 20_100 {
		id := strconv.Itoa(n % 100)
		f.changes = append(f.changes, change{member: protocol.Member{ConnID: id}, joined: n/100%2 == 0})
	}
	members := map[string]bool{}
	batches := 0
	for ; f.trim(); batches++ {
		frame := ts.nextBatch(topic, c, w, map[batchKey]batch{})
		if frame == nil {
			continue
		}
		var sent struct{ Payload protocol.PresenceChanged }
		require.NoError(t, json.Unmarshal(frame.Text(), &sent))
		assert.LessOrEqual(t, len(sent.Payload.Joined)+len(sent.Payload.Left), maxPresenceBatch)
		for _, m := range sent.Payload.Left {
			assert.True(t, members[m.ConnID])
			delete(members, m.ConnID)
		}
		for _, m := range sent.Payload.Joined {
			assert.False(t, members[m.ConnID])
			members[m.ConnID] = true
		}
	}
	assert.LessOrEqual(t, batches, 4)
	assert.Len(t, members, 100)
}
