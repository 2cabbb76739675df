package limittest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// A grant is an allowed call. The limiter decided at some time between start and end.
type grant struct{ start, end time.Time }

// IntervalBoundPolicy returns the policy of the limiters for [IntervalBound], without a name.
func IntervalBoundPolicy() limit.Policy { return limit.PerSecond(2000).Burst(50) }

// IntervalBound calls limiters that share a bucket from many goroutines on the real clock and
// checks every interval between two grants: it must not contain more grants than the capacity
// and the refill in that time.
func IntervalBound(t *testing.T, limiters ...limit.Limiter) {
	t.Helper()
	const callers, calls = 6, 150
	var mu sync.Mutex
	var grants []grant
	var wg sync.WaitGroup
	for n := range callers {
		l := limiters[n%len(limiters)]
		wg.Go(func() {
			for range calls {
				start := time.Now()
				d, err := limit.Consume(context.Background(), l, key("intervals"), 1)
				end := time.Now()
				if !assert.NoError(t, err) {
					return
				}
				if d.Allowed {
					mu.Lock()
					grants = append(grants, grant{start, end})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	p := IntervalBoundPolicy()
	require.GreaterOrEqual(t, int64(len(grants)), p.Capacity, "the calls did not empty the bucket")
	for _, first := range grants {
		// The grants that lie wholly after the start of first, by their ends.
		var ends []time.Duration
		for _, g := range grants {
			if !g.start.Before(first.start) {
				ends = append(ends, g.end.Sub(first.start))
			}
		}
		slices.Sort(ends)
		for i, span := range ends {
			bound := p.Capacity + int64(span)*p.Refill/int64(time.Second) + 1
			require.LessOrEqual(t, int64(i+1), bound, "grants within %v", span)
		}
	}
}
