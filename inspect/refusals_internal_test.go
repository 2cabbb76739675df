package inspect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRefusalRing_KeepsTheNewest adds more refusals than the ring has entries.
func TestRefusalRing_KeepsTheNewest(t *testing.T) {
	var g refusalRing
	all := func(*refusal) bool { return true }
	assert.Empty(t, g.latest(all))
	const added = ringSize + 10
	for i := range int64(added) {
		g.add(refusal{Observed: i}, 1)
	}
	found := g.latest(all)
	require.Len(t, found, maxRows)
	assert.EqualValues(t, added-1, found[0].Observed)
	assert.EqualValues(t, added-maxRows, found[maxRows-1].Observed)
	assert.Empty(t, g.latest(func(r *refusal) bool { return r.Observed == 9 }), "overwritten")
	assert.Len(t, g.latest(func(r *refusal) bool { return r.Observed == 10 }), 1)
	assert.EqualValues(t, 2*added, g.count())
}
