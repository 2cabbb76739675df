package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

func TestPoliciesReadAsTheyAreMeant(t *testing.T) {
	assert.Equal(t, ratelimit.Policy{Capacity: 20, Refill: 10, Per: time.Second}, ratelimit.PerSecond(10).Burst(20))
	assert.Equal(t, ratelimit.Policy{Capacity: 3, Refill: 3, Per: time.Minute}, ratelimit.PerMinute(3))
	assert.Equal(t, ratelimit.Policy{Name: "mail", Capacity: 5, Refill: 5, Per: time.Hour}, ratelimit.PerHour(5).Named("mail"))
}

func TestWrongPoliciesSayWhatWouldBeRight(t *testing.T) {
	for want, p := range map[string]ratelimit.Policy{
		"ratelimit: Capacity is 0; it must be at least 1":                                                        {Refill: 1},
		`ratelimit: policy "chat": Capacity is -5; it must be at least 1`:                                        ratelimit.PerSecond(1).Burst(-5).Named("chat"),
		"ratelimit: Refill is 0; it must be at least 1 (for slower rates, lengthen Per)":                         {Capacity: 1},
		"ratelimit: Per is -1s; it must be a whole number of microseconds, or 0 for one second":                  {Capacity: 1, Refill: 1, Per: -time.Second},
		"ratelimit: Per is 1.5µs; it must be a whole number of microseconds, or 0 for one second":                {Capacity: 1, Refill: 1, Per: 1500 * time.Nanosecond},
		"ratelimit: 1234567 tokens every 1s cannot be kept exactly; choose a rounder rate, such as 1200000":      ratelimit.PerSecond(1234567),
		"ratelimit: Capacity is 3000000000; with 1 tokens every 1s it must be at most 2251799813":                {Capacity: 3_000_000_000, Refill: 1},
		"ratelimit: 1152921504606846976 tokens every 1s are too many; it must be at most 9000 every microsecond": ratelimit.PerSecond(1 << 60),
		"ratelimit: 12345 tokens every 7µs cannot be kept exactly; choose a rounder rate":                        {Capacity: 1, Refill: 12345, Per: 7 * time.Microsecond},
		"ratelimit: Per is 1000000h0m0s; with 1 tokens it must be shorter":                                       ratelimit.Per(1, 1_000_000*time.Hour),
		"ratelimit: Capacity is 9223372036854775807; with 7 tokens every 1h0m0s it must be at most 625499":       ratelimit.PerHour(7).Burst(1<<63 - 1),
	} {
		assert.EqualError(t, p.Validate(), want)
		assert.PanicsWithValue(t, want, func() { p.Units() })
	}
}

func TestRightPolicies(t *testing.T) {
	for _, p := range []ratelimit.Policy{
		{Capacity: 1, Refill: 1},
		ratelimit.PerSecond(1_000_000), ratelimit.PerSecond(1_200_000), ratelimit.PerSecond(12_345 / 5 * 5), ratelimit.PerSecond(8999),
		ratelimit.PerMinute(1), ratelimit.PerHour(625_000),
		{Capacity: 1, Refill: 1, Per: 30 * 24 * time.Hour},
	} {
		assert.NoError(t, p.Validate(), "%+v", p)
	}
}
