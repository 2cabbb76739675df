package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func TestPolicy_ConstructorsSetFields(t *testing.T) {
	assert.Equal(t, limit.Policy{Capacity: 20, Refill: 10, Per: time.Second}, limit.PerSecond(10).Burst(20))
	assert.Equal(t, limit.Policy{Capacity: 3, Refill: 3, Per: time.Minute}, limit.PerMinute(3))
	assert.Equal(t, limit.Policy{Name: "mail", Capacity: 5, Refill: 5, Per: time.Hour}, limit.PerHour(5).Named("mail"))
}

func TestPolicy_ValidateSuggestsCorrection(t *testing.T) {
	for want, p := range map[string]limit.Policy{
		"limit: Capacity is 0; it must be at least 1":                                                        {Refill: 1},
		`limit: policy "chat": Capacity is -5; it must be at least 1`:                                        limit.PerSecond(1).Burst(-5).Named("chat"),
		"limit: Refill is 0; it must be at least 1 (for slower rates, lengthen Per)":                         {Capacity: 1},
		"limit: Per is -1s; it must be a whole number of microseconds, or 0 for one second":                  {Capacity: 1, Refill: 1, Per: -time.Second},
		"limit: Per is 1.5µs; it must be a whole number of microseconds, or 0 for one second":                {Capacity: 1, Refill: 1, Per: 1500 * time.Nanosecond},
		"limit: 1234567 tokens every 1s cannot be counted exactly; choose a rounder rate, such as 1200000":   limit.PerSecond(1234567),
		"limit: Capacity is 3000000000; with 1 tokens every 1s it must be at most 2251799813":                {Capacity: 3_000_000_000, Refill: 1},
		"limit: 1152921504606846976 tokens every 1s are too many; it must be at most 9000 every microsecond": limit.PerSecond(1 << 60),
		"limit: 12345 tokens every 7µs cannot be counted exactly; choose a rounder rate":                     {Capacity: 1, Refill: 12345, Per: 7 * time.Microsecond},
		"limit: Per is 1000000h0m0s; with 1 tokens it must be shorter":                                       limit.Per(1, 1_000_000*time.Hour),
		"limit: Capacity is 9223372036854775807; with 7 tokens every 1h0m0s it must be at most 625499":       limit.PerHour(7).Burst(1<<63 - 1),
	} {
		assert.EqualError(t, p.Validate(), want)
		assert.PanicsWithValue(t, want, func() { adapter.UnitsOf(p) })
	}
}

func TestPolicy_ValidateAcceptsValidPolicies(t *testing.T) {
	for _, p := range []limit.Policy{
		{Capacity: 1, Refill: 1},
		limit.PerSecond(1_000_000), limit.PerSecond(1_200_000), limit.PerSecond(12_345 / 5 * 5), limit.PerSecond(8999),
		limit.PerMinute(1), limit.PerHour(625_000),
		{Capacity: 1, Refill: 1, Per: 30 * 24 * time.Hour},
	} {
		assert.NoError(t, p.Validate(), "%+v", p)
	}
}
