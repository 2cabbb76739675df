package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPresenceFeed_KeepsOnlyChangesThatAreNeeded checks that the changes of a busy topic do not
// pile up.
func TestPresenceFeed_KeepsOnlyChangesThatAreNeeded(t *testing.T) {
	held, fast := &watcher{next: 12, held: true}, &watcher{next: 15}
	f := &presenceFeed{first: 10, changes: make([]presenceChange, 5), watchers: map[*Conn]*watcher{{}: held, {}: fast}}
	f.changes[2].member.ConnID = "12"
	assert.False(t, f.trim(), "nothing can be sent")
	assert.Equal(t, uint64(12), f.first)
	assert.Len(t, f.changes, 3)
	assert.Equal(t, "12", f.from(12)[0].member.ConnID)
	held.held = false
	assert.True(t, f.trim())
	held.next = 15
	assert.False(t, f.trim())
	assert.Empty(t, f.changes)
	assert.Equal(t, uint64(15), f.end())
}
