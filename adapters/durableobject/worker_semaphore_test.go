package durableobject_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWorker_SemaphoreExecutesCallsInOrder(t *testing.T) {
	w := startWorker(t, 3)
	calls := [][5]any{
		{"k", "a", 1, 1000, acquire},
		{"l", "a", 1, 1000, acquire},
		{"k", "b", 1, 1000, acquire},
		{"k", "a", 1, 1000, release},
		{"k", "b", 1, 1000, acquire},
		{"m", "a", 1, 1000, renew},
	}
	reply := w.do(semaphorePath, noon, map[string]any{"v": 2, "calls": calls})
	assert.Equal(t, []*[2]int64{{1, 1}, {1, 1}, {0, 1}, {0, 0}, {1, 1}, {1, 1}}, reply.Permits)
}

// TestWorker_SemaphoreEqualsModel compares random histories with a map of leases.
func TestWorker_SemaphoreEqualsModel(t *testing.T) {
	const permits, lease = 3, 10_000
	w := startWorker(t, 1)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		key, ends, now := fmt.Sprint(seed), map[string]int64{}, int64(noon/1000)
		for range 60 {
			now += r.Int64N(lease / 2)
			if r.IntN(15) == 0 {
				now -= r.Int64N(3 * lease)
			}
			holder, purpose := fmt.Sprint(r.IntN(5)), r.IntN(3)
			for h, end := range ends {
				if ends[h] = min(end, now+lease); ends[h] <= now {
					delete(ends, h)
				}
			}
			want := false
			switch {
			case purpose == release:
				delete(ends, holder)
			case purpose == renew || len(ends) < permits:
				want, ends[holder] = true, now+lease
			}
			acquired, inUse := w.permit(now*1000, key, holder, permits, purpose)
			require.Equal(t, want, acquired, "seed %d", seed)
			require.Equal(t, int64(len(ends)), inUse, "seed %d", seed)
		}
	}
}

func TestWorker_DeniedPermitWritesNoRow(t *testing.T) {
	w := startWorker(t, 1)
	w.permit(noon, "k", "a", 1, acquire)
	before := w.stats(0).Written
	w.permit(noon+1, "k", "b", 1, acquire)
	w.permit(noon+1, "k", "b", 1, release)
	assert.Equal(t, before, w.stats(0).Written)
	w.permit(noon+1, "k", "a", 1, renew)
	assert.Equal(t, before+1, w.stats(0).Written)
}
