package redis_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exceedsBound returns the largest excess, in billionths of a token, of the grants in any
// interval over a capacity and the refill per second in that interval. It is not positive if
// the bound holds. A grant counts in an interval that contains it from sent to received. Grants
// of negative tokens are allowances.
//
// With the grants sorted by when they were received, the excess of the interval from s to the
// end t of a grant is the sum of those up to it that were sent after s, minus the refill until t,
// plus the refill until s, minus the capacity. So the grants are added in the reverse order of
// sent, each to all sums from its own on.
func exceedsBound(grants []chaosGrant, capacity, perSecond int64) (excess int64) {
	byEnd := slices.Clone(grants)
	slices.SortFunc(byEnd, func(a, b chaosGrant) int {
		return cmp.Or(cmp.Compare(a.received, b.received), cmp.Compare(a.tokens, b.tokens)) // allowances first
	})
	order := make([]int, len(byEnd))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(byEnd[b].sent, byEnd[a].sent) })
	const unused = 1 << 61 // keeps an end below all others until its grant is added
	sums := newMaxTree(len(byEnd))
	for i, g := range byEnd {
		sums.add(i, i+1, -unused-perSecond*(g.received-byEnd[0].received))
	}
	excess = -capacity * 1e9
	for n, i := range order {
		g := byEnd[i]
		sums.add(i, len(byEnd), g.tokens*1e9)
		sums.add(i, i+1, unused)
		if n+1 < len(order) && byEnd[order[n+1]].sent == g.sent {
			continue // it begins the same intervals
		}
		excess = max(excess, sums.max()+perSecond*(g.sent-byEnd[0].received)-capacity*1e9)
	}
	return excess
}

// A maxTree is an array of zeros that adds a number to a range, and returns the maximum of all,
// in logarithmic time.
type maxTree struct {
	size  int
	best  []int64 // of a subtree, without what was added to its ancestors
	added []int64 // to a whole subtree
}

func newMaxTree(size int) *maxTree {
	return &maxTree{size, make([]int64, 4*max(size, 1)), make([]int64, 4*max(size, 1))}
}

func (m *maxTree) max() int64 { return m.best[1] }

func (m *maxTree) add(from, to int, n int64) { m.addBelow(1, 0, m.size, from, to, n) }

func (m *maxTree) addBelow(node, low, high, from, to int, n int64) {
	switch {
	case to <= low || high <= from:
	case from <= low && high <= to:
		m.best[node] += n
		m.added[node] += n
	default:
		mid := (low + high) / 2
		m.addBelow(2*node, low, mid, from, to, n)
		m.addBelow(2*node+1, mid, high, from, to, n)
		m.best[node] = max(m.best[2*node], m.best[2*node+1]) + m.added[node]
	}
}

// TestExceedsBound_EqualsAllIntervals compares with a calculation for every pair of times.
func TestExceedsBound_EqualsAllIntervals(t *testing.T) {
	t.Parallel()
	const capacity, perSecond = 10, 5
	exceeded := 0
	for range 300 {
		grants := make([]chaosGrant, 1+rand.IntN(30))
		for i := range grants {
			sent := 1e18 + rand.Int64N(20)*1e8
			grants[i] = chaosGrant{1 + rand.Int64N(4), sent, sent + rand.Int64N(5)*1e8}
			if rand.IntN(10) == 0 {
				grants[i] = chaosGrant{-rand.Int64N(capacity), sent, sent}
			}
		}
		want := int64(-capacity * 1e9)
		for _, first := range grants {
			for _, last := range grants {
				if last.sent < first.sent {
					continue
				}
				sum := int64(0)
				for _, g := range grants {
					if g.sent >= first.sent && g.received <= last.received {
						sum += g.tokens
					}
				}
				want = max(want, sum*1e9-perSecond*(last.received-first.sent)-capacity*1e9)
			}
		}
		require.Equal(t, want, exceedsBound(grants, capacity, perSecond), "%v", grants)
		if want > 0 {
			exceeded++
		}
	}
	assert.NotZero(t, exceeded)
}
