package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAttempts_SlowSuccessAllowsNoFurtherFailure(t *testing.T) {
	r := Rate{PerSecond: 1, Burst: 2}
	var a Attempts
	assert.Zero(t, a.Begin(r, 0))
	assert.Zero(t, a.Begin(r, 10*time.Second))
	assert.Equal(t, time.Second, a.Begin(r, 10*time.Second), "both that run may fail")
	a.End(r, 10*time.Second, true)
	a.End(r, 10*time.Second, false)
	assert.Zero(t, a.Begin(r, 10*time.Second))
	a.End(r, 10*time.Second, true)
	assert.Equal(t, time.Second, a.Begin(r, 10*time.Second), "two have failed at this moment")
	assert.False(t, a.isIdle(12*time.Second-1))
	assert.True(t, a.isIdle(12*time.Second))
}

// TestAttempts_SuccessesAreNotCounted has more successful attempts than may fail, each of which takes as long as
// several tokens need to return.
func TestAttempts_SuccessesAreNotCounted(t *testing.T) {
	r := Rate{PerSecond: 1, Burst: 5}
	var a Attempts
	for now := time.Duration(0); now < time.Minute; now += 3 * time.Second {
		for range r.Burst {
			assert.Zero(t, a.Begin(r, now))
		}
		assert.False(t, a.isIdle(now))
		for range r.Burst {
			a.End(r, now+3*time.Second, false)
		}
		assert.True(t, a.isIdle(now+3*time.Second))
	}
}
