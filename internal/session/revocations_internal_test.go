package session

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRevocations_SessionCatchesUp revokes topics, of which the connection learns of some at once.
func TestRevocations_SessionCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t)
		defer s.end()
		s.adopt()
		known, err := s.node.Revoke(t.Context(), ann.User, "room/a")
		require.NoError(t, err)
		s.Follow(known)
		s.Fire()
		assert.False(t, s.lostAccess(), "the connection has left the topic")
		_, err = s.node.Revoke(t.Context(), ann.User, "hall/a")
		require.NoError(t, err)
		later, err := s.node.Revoke(t.Context(), ann.User, "room/b")
		require.NoError(t, err)
		s.Follow(later)
		s.Fire()
		assert.True(t, s.lostAccess(), "it has missed the change before")
		s.Fire()
		assert.False(t, s.lostAccess(), "once")
		require.NoError(t, s.node.EndSessions(t.Context(), ann.User, End{Code: 4000}))
		s.SetIdentity(Identity{User: User{"t", "bob"}})
		s.Fire()
		assert.False(t, s.lostAccess(), "of another user")
		assert.False(t, s.IsOver())
	})
}

// lostAccess reports whether the connection has had to leave topics since the last call.
func (s *testSession) lostAccess() bool { return slices.Contains(s.effects(), "EndAccess") }

// TestRevocations_AnswerOfTheStoreIsLost stores changes once, although the outcome is unknown.
func TestRevocations_AnswerOfTheStoreIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTestStore()
		n := newTestNode(store)
		n.config.Store = endingStore{testStore: store}
		change, err := n.Revoke(t.Context(), ann.User, "room/a")
		require.NoError(t, err)
		list, _, err := n.loadRevocations(t.Context(), ann.User)
		require.NoError(t, err)
		assert.Equal(t, change.Seq, list.Sequence)
	})
}

// TestRevocations_AreBounded revokes more topics than are kept, so that the sessions end instead.
func TestRevocations_AreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t)
		defer s.end()
		s.adopt()
		s.Fire()
		for i := range maxRevokedTopics + 1 {
			_, err := s.node.Revoke(t.Context(), ann.User, fmt.Sprint("room/", i))
			require.NoError(t, err)
		}
		s.Fire()
		synctest.Wait()
		assert.True(t, s.IsOver())
	})
}
