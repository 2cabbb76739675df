package presence

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/protocol"
)

// TestFeed_KeepsOnlyChangesThatAreNeeded checks that the changes of a busy topic do not pile up.
func TestFeed_KeepsOnlyChangesThatAreNeeded(t *testing.T) {
	held, fast := &watcher{next: 12, held: true}, &watcher{next: 15}
	f := &feed[int]{first: 10, changes: make([]Change, 5), watchers: map[int]*watcher{1: held, 2: fast}}
	f.changes[2].Member.ConnID = "12"
	assert.False(t, f.trim(), "nothing can be sent")
	assert.Equal(t, uint64(12), f.first)
	assert.Len(t, f.changes, 3)
	assert.Equal(t, "12", f.changes[12-f.first].Member.ConnID)
	held.held = false
	assert.True(t, f.trim())
	held.next = 15
	assert.False(t, f.trim())
	assert.Empty(t, f.changes)
	assert.Equal(t, uint64(15), f.end())
}

// startFeed lets client 0 watch, and 1,000 connections join.
func startFeed(t *testing.T) *Members[int] {
	var p Members[int]
	p.Track()
	assert.Empty(t, p.Watch(0))
	for n := range 1000 {
		p.Join(n, Announced{Member: protocol.Member{ConnID: strconv.Itoa(n)}})
	}
	return &p
}

func TestFeed_BoundsMessages(t *testing.T) {
	p := startFeed(t)
	for range p.Next() {
		t.Fatal("sent before the answer")
	}
	assert.False(t, p.EndNext().SendFeed)
	assert.Len(t, p.Watch(1), maxBatch)
	assert.True(t, p.StartFeed(0).SendFeed)
	assert.False(t, p.StartFeed(1).SendFeed, "it is already scheduled")
	received := map[int]int{1: maxBatch}
	for more := true; more; more = p.EndNext().SendFeed {
		for c, m := range p.Next() {
			assert.LessOrEqual(t, len(m.Joined), maxBatch)
			received[c] += len(m.Joined)
		}
	}
	assert.Equal(t, map[int]int{0: 1000, 1: 1000}, received)
}

func TestFeed_WatchersShareMessages(t *testing.T) {
	p := startFeed(t)
	p.Watch(1)
	p.Watch(2)
	p.Unwatch(0)
	p.StartFeed(1)
	p.StartFeed(2)
	for more := true; more; more = p.EndNext().SendFeed { // the members that were there
		for range p.Next() { // they are sent
		}
	}
	p.Leave(7, true)
	messages := map[*protocol.PresenceChanged]int{}
	for _, m := range p.Next() {
		messages[m]++
		assert.Len(t, m.Left, 1)
	}
	assert.Len(t, messages, 1)
	assert.False(t, p.EndNext().SendFeed)
}

// TestFeed_RepeatedJoinsDoNotPileUp lets 100 members join and leave much more often than
// batches are sent. Their number does not grow, so few batches must suffice.
func TestFeed_RepeatedJoinsDoNotPileUp(t *testing.T) {
	var p Members[int]
	p.Track()
	p.Watch(-1)
	p.StartFeed(-1)
	for n := range 20_100 {
		if c := n % 100; n/100%2 == 0 {
			p.Join(c, Announced{Member: protocol.Member{ConnID: strconv.Itoa(c)}})
		} else {
			p.Leave(c, true)
		}
	}
	members, batches := map[string]bool{}, 0
	for more := true; more; more = p.EndNext().SendFeed {
		batches++
		for _, m := range p.Next() {
			assert.LessOrEqual(t, len(m.Joined)+len(m.Left), maxBatch)
			for _, left := range m.Left {
				assert.True(t, members[left.ConnID])
				delete(members, left.ConnID)
			}
			for _, joined := range m.Joined {
				assert.False(t, members[joined.ConnID])
				members[joined.ConnID] = true
			}
		}
	}
	assert.LessOrEqual(t, batches, 4)
	assert.Len(t, members, 100)
}
