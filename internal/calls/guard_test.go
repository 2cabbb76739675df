package calls_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/calls"
)

// TestGuard_DecidesAgainAfterEachRevocation also revokes while it decides.
func TestGuard_DecidesAgainAfterEachRevocation(t *testing.T) {
	var (
		guards      calls.Guards[message]
		k           calls.Call[message]
		revocations atomic.Uint32
		denied      error
		during      = 2 // revocations while Decide runs
		decided     int
	)
	assert.Nil(t, guards.Of(&k))
	require.NoError(t, guards.Of(&k).Check(), "without a guard")
	revocations.Store(7)
	g := guards.Add(&k, &revocations, func() error {
		if decided++; during > 0 {
			during--
			revocations.Add(1)
		}
		return denied
	})
	assert.Same(t, g, guards.Of(&k))
	assert.False(t, g.IsStale())
	require.NoError(t, g.Check())
	assert.Zero(t, decided)
	revocations.Add(1)
	assert.True(t, g.IsStale())
	require.NoError(t, g.Check())
	assert.Equal(t, 3, decided)
	denied = errAborted
	require.NoError(t, g.Check())
	revocations.Add(1)
	assert.Equal(t, errAborted, g.Check())
	guards.Remove(&k)
	assert.Nil(t, guards.Of(&k))
}
