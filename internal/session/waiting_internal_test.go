package session

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/present"
)

// TestSession_LeavesTopicsAlthoughItHasMoved revokes the topics of two sessions, which both move when one of them leaves.
func TestSession_LeavesTopicsAlthoughItHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(newTestStore())
		n.config.Away = present.New(2, 2)
		var all []*Session
		var left []string
		for _, id := range []string{"a", "b"} {
			c := newTestConn(id)
			c.Act = func(_ *Session, a Action) {
				if a.Kind != LeaveTopics {
					return
				}
				left = append(left, a.Topics...)
				for _, s := range all {
					s.handle(func() []Action { return s.moveLocked(nil) })
				}
			}
			s := n.Begin(&c.Conn, ann, nil, nil)
			require.True(t, s.StoreFirst(t.Context()))
			s.Disconnected(false, false)
			require.True(t, n.config.Away.Stay(s.Away(), "room/"+id, 0))
			all = append(all, s)
		}
		n.config.Away.Revoke(present.User(ann.User), func(string) bool { return true })
		assert.ElementsMatch(t, []string{"room/a", "room/b"}, left)
		n.Close(t.Context())
	})
}
