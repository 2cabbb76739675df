package router

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRefusalSampler_CountsEveryRefusal samples 10,000 clients per second, some of them often.
func TestRefusalSampler_CountsEveryRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, seconds, often = 10_000, 3, 10
		var s refusalSampler
		s.init()
		var total, reported int64
		latest := map[string]time.Time{}
		for second := range seconds {
			for i := range clients + often*clients/100 {
				user := strconv.Itoa(i % clients)
				refusal := Refusal{Identity: Identity{UserID: user}, IP: netip.MustParseAddr("192.0.2.1")}
				total++
				if !s.sample(&refusal) {
					continue
				}
				reported += 1 + refusal.Unreported
				if at, ok := latest[user]; ok {
					assert.GreaterOrEqual(t, time.Since(at), sampleInterval)
				}
				latest[user] = time.Now()
			}
			assert.Equal(t, total, reported+s.unreported, "second %d", second)
			time.Sleep(sampleInterval)
		}
		refusal := Refusal{Identity: Identity{UserID: "last"}}
		assert.True(t, s.sample(&refusal))
		assert.Equal(t, total, reported+refusal.Unreported, "every refusal is reported or counted")
	})
}

// TestRefusalSampler_ReportsAreASecondApart samples one client at times around the moments at
// which the sampler forgets.
func TestRefusalSampler_ReportsAreASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s refusalSampler
		s.init()
		var last time.Time
		for range 10_000 {
			refusal := Refusal{Identity: Identity{UserID: "ann"}}
			if s.sample(&refusal) {
				if !last.IsZero() {
					assert.GreaterOrEqual(t, time.Since(last), sampleInterval)
					assert.Less(t, time.Since(last), sampleInterval+7*time.Millisecond)
				}
				last = time.Now()
			}
			other := Refusal{Identity: Identity{UserID: "bob"}}
			s.sample(&other)
			time.Sleep(7 * time.Millisecond)
		}
	})
}
