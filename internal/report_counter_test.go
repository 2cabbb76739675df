package internal_test

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/report"
)

// newCounter returns what counts refusals of connections.
func newCounter() (passes func(connID string) (missed int64, ok bool)) {
	r := new(report.Refusals)
	r.Init()
	return func(connID string) (int64, bool) { return r.Passes(registry.User{}, netip.Addr{}, connID) }
}

// TestCounter_CountsEverything samples 10,000 keys per second, some of them often.
func TestCounter_CountsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, seconds, often = 10_000, 3, 10
		passes := newCounter()
		var total, reported int64
		latest := map[string]time.Time{}
		for range seconds {
			for i := range keys + often*keys/100 {
				key := strconv.Itoa(i % keys)
				total++
				missed, ok := passes(key)
				if !ok {
					continue
				}
				reported += 1 + missed
				if at, ok := latest[key]; ok {
					assert.GreaterOrEqual(t, time.Since(at), time.Second)
				}
				latest[key] = time.Now()
			}
			time.Sleep(time.Second)
		}
		missed, ok := passes("last")
		assert.True(t, ok)
		assert.Equal(t, total, reported+missed, "everything is reported or counted")
	})
}

// TestCounter_ReportsAreASecondApart samples one key at times around the moments at which the sampler
// forgets.
func TestCounter_ReportsAreASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := newCounter()
		var last time.Time
		for range 10_000 {
			if _, ok := passes("ann"); ok {
				if !last.IsZero() {
					assert.GreaterOrEqual(t, time.Since(last), time.Second)
					assert.Less(t, time.Since(last), time.Second+7*time.Millisecond)
				}
				last = time.Now()
			}
			passes("bob")
			time.Sleep(7 * time.Millisecond)
		}
	})
}
