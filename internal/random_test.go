package internal_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/random"
)

// draw calls every function.
func draw() (drawn []any) {
	order := []int{0, 1, 2, 3, 4, 5, 6, 7}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return []any{random.N(time.Hour), random.N(int8(100)), random.Uint64(), random.Float64(), random.New().Uint64(), order}
}

func TestSeed_RepeatsTheNumbersOfItsSeed(t *testing.T) {
	var runs [3][]any
	for i, seed := range []uint64{1, 1, 2} {
		restore := random.Seed(seed)
		runs[i] = draw()
		restore()
	}
	assert.Equal(t, runs[0], runs[1])
	for i := range runs[0] {
		assert.NotEqual(t, runs[0][i], runs[2][i], "function %d ignores the seed", i)
	}
	assert.NotEqual(t, draw(), draw(), "the source is restored")
}

func TestSeed_PanicsWhileAnotherSeedIsInUse(t *testing.T) {
	restore := random.Seed(1)
	assert.Panics(t, func() { random.Seed(2) })
	restore()
	restore()
	defer random.Seed(3)()
	restore() // must not end the next one
	assert.Panics(t, func() { random.Seed(4) })
}

func TestFunctions_KeepTheirBounds(t *testing.T) {
	check := func(t *testing.T) {
		assert.Panics(t, func() { random.N(0) })
		assert.Panics(t, func() { random.N(time.Duration(-1)) })
		for range 1000 {
			require.Zero(t, random.N(1))
			require.Less(t, random.N(uint64(1<<63)), uint64(1<<63))
			n := random.N(5 * time.Second)
			require.True(t, n >= 0 && n < 5*time.Second, "%v", n)
			f := random.Float64()
			require.True(t, f >= 0 && f < 1, "%v", f)
		}
		order := []int{0, 1, 2, 3}
		random.Shuffle(0, nil)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		slices.Sort(order)
		require.Equal(t, []int{0, 1, 2, 3}, order)
	}
	t.Run("global", check)
	t.Run("seeded", func(t *testing.T) {
		defer random.Seed(1)()
		check(t)
	})
}

func TestSeed_IsSafeForConcurrentUse(t *testing.T) {
	defer random.Seed(1)()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				draw()
			}
		})
	}
	all.Wait()
}
