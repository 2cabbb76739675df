package registry

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestBucket_GrantsNoMoreThanItsRate compares random calls with the definition: in every interval, no more
// than the burst and what returns in the interval.
func TestBucket_GrantsNoMoreThanItsRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r := Rate{1 + rng.IntN(2000), 1 + rng.IntN(50)}
		var b Bucket
		var now time.Duration
		type grant struct {
			at     time.Duration
			tokens int
		}
		var grants []grant
		for range 300 {
			now += time.Duration(rng.Int64N(int64(4 * time.Second / time.Duration(r.PerSecond))))
			tokens := 1 + rng.IntN(3)
			if wait := b.Take(r, now, tokens); wait == 0 {
				grants = append(grants, grant{now, tokens})
			} else if tokens <= r.Burst {
				var copied Bucket
				copied.fullAt.Store(b.fullAt.Load())
				assert.Zero(t, copied.Take(r, now+wait, tokens), "after the wait")
			}
		}
		for i := range grants {
			sum := 0
			for _, g := range grants[i:] {
				sum += g.tokens
				allowed := float64(r.Burst) + (g.at-grants[i].at).Seconds()*float64(r.PerSecond)
				if float64(sum) > allowed+1e-3 {
					t.Fatalf("%d tokens between %v and %v, allowed are %.3f", sum, grants[i].at, g.at, allowed)
				}
			}
		}
	}
}

// TestBucket_OwedTokensDelayLaterOnes owes more than the bucket has, and gives back what has been taken.
func TestBucket_OwedTokensDelayLaterOnes(t *testing.T) {
	r := Rate{PerSecond: 10, Burst: 5}
	var b Bucket
	b.Owe(r, 0, 0)
	assert.True(t, b.isFull(0))
	b.Owe(r, 0, 7)
	assert.Equal(t, 300*time.Millisecond, b.Take(r, 0, 1))
	assert.Zero(t, b.Take(r, 300*time.Millisecond, 1))
	assert.Equal(t, 100*time.Millisecond, b.Take(r, 300*time.Millisecond, 1))
	b.GiveBack(r, 1)
	assert.Zero(t, b.Take(r, 300*time.Millisecond, 1))
	assert.False(t, b.isFull(799*time.Millisecond))
	assert.True(t, b.isFull(800*time.Millisecond))
}

func TestBucket_LeftIsWhatCanBeTaken(t *testing.T) {
	r := Rate{PerSecond: 10, Burst: 5}
	var b Bucket
	assert.Equal(t, 5, b.Left(r, 0))
	assert.Zero(t, b.Take(r, 0, 3))
	assert.Equal(t, 2, b.Left(r, 0))
	assert.Equal(t, 3, b.Left(r, 150*time.Millisecond))
	b.Owe(r, 0, 7)
	assert.Zero(t, b.Left(r, 0))
	assert.Equal(t, 5, b.Left(r, time.Hour))
	assert.Equal(t, Unlimited, b.Left(Rate{PerSecond: Unlimited, Burst: Unlimited}, 0))
}

func TestBucket_UnlimitedRateRefusesNothing(t *testing.T) {
	r := Rate{PerSecond: Unlimited, Burst: Unlimited}
	var b Bucket
	b.Owe(r, 0, Unlimited)
	assert.Zero(t, b.Take(r, 0, Unlimited))
	assert.True(t, b.isFull(0))
}
