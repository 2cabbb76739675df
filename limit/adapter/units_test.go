package adapter_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func TestUnits_FromUnitsRoundsUp(t *testing.T) {
	thirds := adapter.UnitsOf(limit.Per(1, 3*time.Microsecond))
	halves := adapter.UnitsOf(limit.Per(1, 2*time.Microsecond))
	for missing, want := range map[int64]int64{0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 6: 4} {
		assert.Equal(t, want, halves.FromUnits(missing, thirds), "%d thirds", missing)
	}
	large := adapter.UnitsOf(limit.Per(1, 10_000*time.Hour))
	assert.Equal(t, int64(1<<52), large.FromUnits(1<<51, halves), "more than any bucket holds")
}

func TestUnits_RefillsFasterThan(t *testing.T) {
	second, minute := adapter.UnitsOf(limit.PerSecond(1)), adapter.UnitsOf(limit.PerMinute(60).Burst(1))
	assert.False(t, second.RefillsFasterThan(minute), "the rates are equal")
	assert.False(t, minute.RefillsFasterThan(second))
	assert.True(t, adapter.UnitsOf(limit.PerMinute(61)).RefillsFasterThan(second))
	assert.False(t, adapter.UnitsOf(limit.PerMinute(59)).RefillsFasterThan(second))
}

func TestUnits_DescriptionIsInLowestTerms(t *testing.T) {
	thirds := adapter.UnitsOf(limit.Per(6, 14*time.Millisecond).Burst(20))
	assert.Equal(t, limit.Description{Name: "x", Limit: 20, Window: 46_667 * time.Microsecond, Refill: 3, Per: 7 * time.Millisecond}, thirds.Description("x"))
	assert.Equal(t, limit.Description{Limit: 5000, Window: time.Microsecond, Refill: 5000, Per: time.Microsecond}, adapter.UnitsOf(limit.Per(5000, time.Microsecond)).Description(""))
}

// FuzzUnits_FromUnits compares conversions with rational numbers.
func FuzzUnits_FromUnits(f *testing.F) {
	f.Add(int64(5), int64(1_000_000), int64(7), int64(3_600_000_000), int64(123))
	f.Add(int64(1), int64(3), int64(1), int64(2), int64(1))
	f.Add(int64(8999), int64(1), int64(1), int64(1<<50), int64(1<<52))
	f.Fuzz(func(t *testing.T, refill, micros, oldRefill, oldMicros, missing int64) {
		p := limit.Policy{Capacity: 1, Refill: refill, Per: time.Duration(micros) * time.Microsecond}
		old := limit.Policy{Capacity: 1, Refill: oldRefill, Per: time.Duration(oldMicros) * time.Microsecond}
		if micros <= 0 || oldMicros <= 0 || micros > 1<<53 || oldMicros > 1<<53 || p.Validate() != nil || old.Validate() != nil || missing < 0 || missing > 1<<52 {
			t.Skip()
		}
		u, o := adapter.UnitsOf(p), adapter.UnitsOf(old)
		got := u.FromUnits(missing, o)
		assert.Equal(t, big.NewRat(refill, micros).Denom().Int64(), u.PerToken())
		exact := new(big.Rat).Mul(big.NewRat(missing, o.PerToken()), new(big.Rat).SetInt64(u.PerToken()))
		if exact.Cmp(new(big.Rat).SetInt64(1<<52)) >= 0 {
			assert.Equal(t, int64(1<<52), got)
			return
		}
		excess := new(big.Rat).Sub(new(big.Rat).SetInt64(got), exact)
		assert.GreaterOrEqual(t, excess.Sign(), 0, "rounded down")
		assert.Negative(t, excess.Cmp(big.NewRat(1, 1)), "rounded up by a unit or more")
		faster := big.NewRat(refill, micros).Cmp(big.NewRat(oldRefill, oldMicros)) > 0
		assert.Equal(t, faster, u.RefillsFasterThan(o))
	})
}
