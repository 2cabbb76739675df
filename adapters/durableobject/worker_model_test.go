package durableobject_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// modelPolicies have different units and capacities, and both are slower and faster than each other.
// Conversions between them need products above 2^53.
var modelPolicies = []limit.Policy{
	{Capacity: 10, Refill: 10},
	{Capacity: 7, Refill: 3, Per: 7 * time.Second},
	{Capacity: 100_000, Refill: 8999, Per: time.Second},
	{Capacity: 12, Refill: 7, Per: time.Second}, // has the unit of the one before
	{Capacity: 20_000, Refill: 1, Per: 24 * time.Hour},
	{Capacity: 3, Refill: 1, Per: time.Hour},
	{Capacity: 1 << 40, Refill: 8_999_000_000, Per: time.Second},
}

// A modelBucket is a token bucket in rational arithmetic. Missing units are those at a time, of the
// policy that was used last to change it.
type modelBucket struct {
	missing *big.Int
	most    *big.Int // what may be missing at most, if the clock goes backwards
	at      int64
	policy  limit.Policy

	blockedAt, blockedFor int64
}

func full() *modelBucket {
	return &modelBucket{missing: new(big.Int), most: new(big.Int), policy: modelPolicies[0]}
}

func (b *modelBucket) set(missing *big.Int, now int64, p limit.Policy) {
	if missing.Sign() == 0 { // forgotten, so it stays full if the clock goes backwards
		*b = *full()
		return
	}
	capacity := big.NewInt(adapter.UnitsOf(p).Full())
	b.missing, b.at, b.policy, b.blockedFor, b.most = missing, now, p, 0, capacity
	if missing.Cmp(capacity) > 0 {
		b.most = missing
	}
}

// call returns what the bucket held before the call.
func (b *modelBucket) call(now int64, p limit.Policy, units, lowest, divisor int64) int64 {
	if b.blockedFor > 0 && now < b.blockedAt+b.blockedFor {
		if now < b.blockedAt {
			b.blockedAt = now
		}
		return -1<<52 - (b.blockedAt + b.blockedFor - now)
	}
	u, old := adapter.UnitsOf(p), adapter.UnitsOf(b.policy)
	missing, outdated := new(big.Int), false
	elapsed := new(big.Int).Mul(big.NewInt(now-b.at), big.NewInt(old.PerMicro()))
	if left := new(big.Int).Sub(b.missing, elapsed); left.Sign() > 0 && b.blockedFor == 0 {
		outdated = u.RefillsFasterThan(old)
		if left.Cmp(b.most) > 0 {
			left, outdated = b.most, true
		}
		missing = convertRoundingUp(left, old.PerToken(), u.PerToken())
	}
	held := u.Full() - missing.Int64()
	var taken int64
	if units < 0 {
		taken = max(units, -missing.Int64())
	} else if held > lowest {
		taken = min(units, (held-lowest)/divisor*divisor)
	}
	if taken != 0 || outdated {
		b.set(missing.Add(missing, big.NewInt(taken)), now, p)
	}
	return held
}

func convertRoundingUp(units *big.Int, from, to int64) *big.Int {
	if from == to {
		return new(big.Int).Set(units)
	}
	product := new(big.Int).Mul(units, big.NewInt(to))
	quotient, rest := new(big.Int).QuoRem(product, big.NewInt(from), new(big.Int))
	if rest.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	if bound := big.NewInt(1 << 52); quotient.Cmp(bound) > 0 {
		return bound
	}
	return quotient
}

// randomCall returns units, lowest and divisor as the operations of a limiter send them.
func randomCall(r *rand.Rand, p limit.Policy) (units, lowest, divisor int64) {
	u := adapter.UnitsOf(p)
	amount := func() int64 { return u.CostUnits(1 + r.Int64N(1+r.Int64N(p.Capacity))) }
	switch r.IntN(8) {
	case 0: // reads
		return 0, 0, 1
	case 1: // Refund
		return -amount(), 0, 1
	case 2: // Reserve
		units = amount()
		return units, -r.Int64N(3.6e9) * u.PerMicro(), units
	case 3: // ConsumeKeeping
		units = amount()
		return units, r.Int64N(u.Full()), units
	case 4: // ConsumeUpTo
		return amount(), 0, u.PerToken()
	case 5: // Charge
		units = amount()
		return units, -units, 1
	default: // Consume
		units = min(amount(), u.Full())
		return units, 0, units
	}
}

func randomStep(r *rand.Rand, p limit.Policy) int64 {
	window := adapter.UnitsOf(p).Window().Microseconds()
	switch r.IntN(10) {
	case 0:
		return 0
	case 1: // the clock goes backwards
		return -r.Int64N(2 * window)
	case 2:
		return r.Int64N(2 * window)
	default:
		return r.Int64N(1 + window/100)
	}
}

// TestWorker_EqualsModel compares random histories of a few keys, whose calls have different
// policies, with rational arithmetic.
func TestWorker_EqualsModel(t *testing.T) {
	w := startWorker(t, 1)
	for seed := range testscale.Tiers[uint64](10, 10, 60) {
		r := rand.New(rand.NewPCG(seed, 0))
		// Half of the histories change between two policies, which may differ in any way.
		policies := []limit.Policy{modelPolicies[r.IntN(len(modelPolicies))]}
		if seed%2 == 0 {
			policies = append(policies, modelPolicies[r.IntN(len(modelPolicies))])
		}
		keys := []string{fmt.Sprint(seed, " a"), fmt.Sprint(seed, " b")}
		buckets := []*modelBucket{full(), full()}
		now := int64(noon)
		for range 60 {
			p := policies[r.IntN(len(policies))]
			now = min(max(now+randomStep(r, p), noon/2), 1<<52)
			if r.IntN(20) == 0 {
				i, d := r.IntN(2), time.Duration(r.Int64N(2*adapter.UnitsOf(p).Window().Microseconds())*r.Int64N(2))*time.Microsecond
				w.block(now, keys[i], min(d, 365*24*time.Hour))
				buckets[i] = full()
				buckets[i].blockedAt, buckets[i].blockedFor = now, min(d, 365*24*time.Hour).Microseconds()
			}
			calls, want := make([]limitCall, 1+r.IntN(6)), []int64(nil)
			for j := range calls {
				i := r.IntN(2)
				units, lowest, divisor := randomCall(r, p)
				calls[j] = limitCall{keys[i], units, lowest, divisor}
				want = append(want, buckets[i].call(now, p, units, lowest, divisor))
			}
			require.Equal(t, want, w.limit(now, p, calls...), "seed %d, time %d, %v, %v", seed, now, p, calls)
		}
	}
}
