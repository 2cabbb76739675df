package rawclient

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestBackoff_FollowsTheCloseCodes has the longest delay of each attempt, without the random part of a
// second attempt: jitter returns its limit.
func TestBackoff_FollowsTheCloseCodes(t *testing.T) {
	const ms = time.Millisecond
	longest := func(limit time.Duration) time.Duration { return limit }
	tests := []struct {
		name   string
		ends   []ending
		open   time.Duration
		delays []time.Duration // negative: the client stops
	}{
		{"lost", []ending{{code: 1006}, {code: 1006}, {code: 1006}}, 0, []time.Duration{600 * ms, 1100 * ms, 2100 * ms}},
		{"open for long", []ending{{code: 1006}, {code: 1006}}, 5 * time.Second, []time.Duration{600 * ms, 600 * ms}},
		{"restart", []ending{{code: 1012}, {code: 1012}}, 0, []time.Duration{10_600 * ms, 1100 * ms}},
		{"restart with a delay", []ending{{1012, `{"code":"UNAVAILABLE","retryAfterMs":812}`}}, 0, []time.Duration{1412 * ms}},
		{"too slow", []ending{{code: 1013}}, 0, []time.Duration{5600 * ms}},
		{"null below 4000", []ending{{1009, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null}`}}, 0, []time.Duration{600 * ms}},
		{"null from 4000", []ending{{4429, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null}`}}, 0, []time.Duration{-1}},
		{"another reason", []ending{{4429, `retryAfterMs`}}, 0, []time.Duration{5600 * ms}},
		{"violation twice", []ending{{code: 1002}, {code: 1007}}, 0, []time.Duration{600 * ms, -1}},
		{"violation, then not", []ending{{code: 1002}, {code: 1006}, {code: 1002}}, 0, []time.Duration{600 * ms, 1100 * ms, 2100 * ms}},
		{"credentials twice", []ending{{code: 4401}, {code: 4401}}, 0, []time.Duration{600 * ms, -1}},
		{"permission", []ending{{code: 4403}}, 0, []time.Duration{-1}},
		{"superseded", []ending{{code: 4409}}, 0, []time.Duration{-1}},
		{"application", []ending{{4000, "bye"}}, 0, []time.Duration{600 * ms}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b backoff
			for i, end := range test.ends {
				delay, stop := b.next(end, test.open, longest)
				assert.Equal(t, test.delays[i] < 0, stop, "attempt %d", i)
				if !stop {
					assert.Equal(t, test.delays[i], delay, "attempt %d", i)
				}
			}
		})
	}
}
