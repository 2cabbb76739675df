package ratelimittest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A grant is an admission that happened at some time between two.
type grant struct{ asked, came time.Time }

// HistoryPolicy is what the limiters of [History] must have, besides a name.
func HistoryPolicy() ratelimit.Policy { return ratelimit.PerSecond(2000).Burst(50) }

// History has many callers ask limiters that share a bucket, on the real clock, and looks
// at every interval of what was granted: no more may be in it than the capacity and what
// flowed in meanwhile.
func History(t *testing.T, limiters ...ratelimit.Limiter) {
	t.Helper()
	const callers, calls = 6, 400
	var mu sync.Mutex
	var grants []grant
	var wg sync.WaitGroup
	for n := range callers {
		l := limiters[n%len(limiters)]
		wg.Go(func() {
			for range calls {
				asked := time.Now()
				d, err := l.Consume(context.Background(), key("history"), 1)
				came := time.Now()
				if !assert.NoError(t, err) {
					return
				}
				if d.Allowed {
					mu.Lock()
					grants = append(grants, grant{asked, came})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	p := HistoryPolicy()
	require.GreaterOrEqual(t, int64(len(grants)), p.Capacity, "the bucket was not emptied")
	for _, first := range grants {
		// The grants that lie in an interval that begins with first, by their ends.
		var ends []time.Duration
		for _, g := range grants {
			if !g.asked.Before(first.asked) {
				ends = append(ends, g.came.Sub(first.asked))
			}
		}
		slices.Sort(ends)
		for i, span := range ends {
			most := p.Capacity + int64(span)*p.Refill/int64(time.Second) + 1
			require.LessOrEqual(t, int64(i+1), most, "grants within %v", span)
		}
	}
}
