package router

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRejectionSampler_CountsEveryRejection samples 10,000 clients per second, some of them often.
func TestRejectionSampler_CountsEveryRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, seconds, often = 10_000, 3, 10
		var s rejectionSampler
		s.init()
		var total, reported int64
		latest := map[string]time.Time{}
		for second := range seconds {
			for i := range clients + often*clients/100 {
				user := strconv.Itoa(i % clients)
				rejection := Rejection{Identity: Identity{UserID: user}, IP: netip.MustParseAddr("192.0.2.1")}
				total++
				if !s.sample(&rejection) {
					continue
				}
				reported += 1 + rejection.Unreported
				if at, ok := latest[user]; ok {
					assert.GreaterOrEqual(t, time.Since(at), sampleInterval)
				}
				latest[user] = time.Now()
			}
			assert.Equal(t, total, reported+s.unreported, "second %d", second)
			time.Sleep(sampleInterval)
		}
		rejection := Rejection{Identity: Identity{UserID: "last"}}
		assert.True(t, s.sample(&rejection))
		assert.Equal(t, total, reported+rejection.Unreported, "every rejection is reported or counted")
	})
}

// TestRejectionSampler_ReportsAreASecondApart samples one client at times around the moments at
// which the sampler forgets.
func TestRejectionSampler_ReportsAreASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s rejectionSampler
		s.init()
		var last time.Time
		for range 10_000 {
			rejection := Rejection{Identity: Identity{UserID: "ann"}}
			if s.sample(&rejection) {
				if !last.IsZero() {
					assert.GreaterOrEqual(t, time.Since(last), sampleInterval)
					assert.Less(t, time.Since(last), sampleInterval+7*time.Millisecond)
				}
				last = time.Now()
			}
			other := Rejection{Identity: Identity{UserID: "bob"}}
			s.sample(&other)
			time.Sleep(7 * time.Millisecond)
		}
	})
}
