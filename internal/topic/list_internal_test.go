package topic

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numbered returns n subscribers in the order of their numbers.
func numbered(n int) []*Subscriber {
	conns := make([]*Subscriber, n)
	for i := range conns {
		conns[i] = &Subscriber{Number: uint64(i) + 1}
	}
	return conns
}

// checkConnList compares a list with the numbers that it must contain, and checks its blocks.
func checkConnList(t *testing.T, l *connList[*Subscriber], want map[uint64]bool) {
	t.Helper()
	var got []uint64
	for c := range l.all() {
		got = append(got, c.Number)
	}
	require.True(t, slices.IsSorted(got), "the connections are in order")
	require.Len(t, got, len(want))
	for _, number := range got {
		require.True(t, want[number])
	}
	for _, block := range l.blocks {
		require.NotEmpty(t, block)
		require.LessOrEqual(t, len(block), maxBlockEntries)
	}
}

func TestConnList_KeepsOrderOfConnections(t *testing.T) {
	t.Parallel()
	const n = 4 * maxBlockEntries
	conns := numbered(n)
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0))
		var l connList[*Subscriber]
		want := map[uint64]bool{}
		for step := range 20_000 {
			c := conns[random.IntN(n)]
			grows := step/4000%2 == 0 // the list grows and shrinks in turn
			if random.IntN(4) > 0 == grows {
				if before := l.put(c); want[c.Number] {
					require.Same(t, c, before)
				} else {
					require.Nil(t, before)
				}
				want[c.Number] = true
			} else {
				require.Equal(t, want[c.Number], l.remove(c))
				delete(want, c.Number)
			}
			require.Equal(t, want[c.Number], l.find(c) == c)
			if step%200 == 0 {
				checkConnList(t, &l, want)
			}
		}
		for _, c := range conns {
			require.Equal(t, want[c.Number], l.remove(c))
		}
		assert.Empty(t, l.blocks)
	}
}

func TestConnList_AddsInEveryOrder(t *testing.T) {
	const n = 5*maxBlockEntries + 7
	conns := numbered(n)
	want := map[uint64]bool{}
	for _, c := range conns {
		want[c.Number] = true
	}
	descending, outwards := slices.Clone(conns), []*Subscriber{}
	slices.Reverse(descending)
	for i := range n / 2 {
		outwards = append(outwards, conns[n/2+i], conns[n/2-1-i])
	}
	outwards = append(outwards, conns[n-1])
	const edge = maxBlockEntries
	inwards := slices.Concat(conns[:edge], conns[n-edge:], descending[edge:n-edge])
	for name, tt := range map[string]struct {
		order     []*Subscriber
		maxBlocks int
	}{
		"ascending":  {conns, 6},
		"descending": {descending, 11},
		"outwards":   {outwards, 11},
		"inwards":    {inwards, 11},
	} {
		t.Run(name, func(t *testing.T) {
			var l connList[*Subscriber]
			for _, c := range tt.order {
				l.put(c)
			}
			checkConnList(t, &l, want)
			assert.LessOrEqual(t, len(l.blocks), tt.maxBlocks)
		})
	}
}

// TestConnList_ShrinksAfterMostHaveLeft checks that the memory of a list is in proportion to its
// entries.
func TestConnList_ShrinksAfterMostHaveLeft(t *testing.T) {
	conns := numbered(40 * maxBlockEntries)
	var l connList[*Subscriber]
	for _, c := range conns {
		l.put(c)
	}
	want := map[uint64]bool{}
	for i, c := range conns {
		if i%100 == 0 {
			want[c.Number] = true
		} else {
			l.remove(c)
		}
	}
	checkConnList(t, &l, want)
	entries := 0
	for _, block := range l.blocks {
		entries += cap(block)
	}
	assert.LessOrEqual(t, entries, 4*len(want))
	assert.LessOrEqual(t, len(l.blocks), 1+4*len(want)/maxBlockEntries)

	var one connList[*Subscriber]
	for _, c := range conns[:maxBlockEntries] {
		one.put(c)
	}
	for _, c := range conns[1:maxBlockEntries] {
		one.remove(c)
	}
	assert.LessOrEqual(t, cap(one.blocks[0]), 4)
}

func TestConnList_ReplacesEntryOfConnection(t *testing.T) {
	c := numbered(1)[0]
	var l connList[*follower]
	first, second := &follower{conn: c}, &follower{conn: c}
	assert.Nil(t, l.put(first))
	assert.Same(t, first, l.put(second))
	assert.Same(t, second, l.find(c))
	assert.True(t, l.remove(c))
	assert.False(t, l.remove(c))
	assert.Nil(t, l.find(c))
}
