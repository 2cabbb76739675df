package replay

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A rate has a bucket of the largest valid capacity per key, and records the largest debt of each.
// A bucket with that capacity would have rejected nothing; one token less would have rejected a
// request.
type rate struct {
	limit.Policy // with the largest valid capacity

	units adapter.Units
	debts []debt // by key
}

type debt struct {
	fullAt int64 // when the bucket is full again, in units since the epoch
	max    int64 // largest debt in units; math.MaxInt64 if no bucket is large enough
}

func newRate(p limit.Policy) *rate {
	const maxCapacity = 1 << 51 // no valid policy has more
	p = p.Burst(int64(sort.Search(maxCapacity, func(n int) bool { return p.Burst(int64(n)+1).Validate() != nil && n > 0 })))
	return &rate{Policy: p, units: adapter.UnitsOf(p)}
}

func (r *rate) take(key int, micros, cost int64) {
	d := &r.debts[key]
	now, need := micros*r.units.PerMicro(), r.units.CostUnits(cost)
	used := max(d.fullAt-now, 0)
	if need > r.units.Full()-used {
		d.max = math.MaxInt64
		return
	}
	d.fullAt = now + used + need
	d.max = max(d.max, used+need)
}

// A Share is an exact percentage of the keys.
type Share struct{ percent *big.Rat }

// ParseShare parses a percentage such as "p99" or "p99.9".
func ParseShare(text string) (Share, error) {
	digits := strings.TrimPrefix(text, "p")
	percent, ok := new(big.Rat).SetString(digits)
	if !ok || strings.Trim(digits, "0123456789.") != "" || percent.Sign() <= 0 || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return Share{}, fmt.Errorf("%q is not a percentage of the keys; it must be like p99 or p99.9, up to p100", text)
	}
	return Share{percent}, nil
}

// Percent formats the share in percent, with up to six decimals.
func (s Share) Percent() string {
	text := s.percent.FloatString(6)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// of returns the share of n keys, rounded up.
func (s Share) of(n int) int {
	keys := new(big.Rat).Mul(s.percent, big.NewRat(int64(n), 100))
	whole, rest := new(big.Int).QuoRem(keys.Num(), keys.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return int(whole.Int64()) + 1
	}
	return int(whole.Int64())
}

// A Candidate is the policy with the smallest burst, at a given rate, that never rejects a share
// of the keys.
type Candidate struct {
	Policy       limit.Policy
	KeysRejected int64
	Max          float64 // tokens that one key can use in the window
	FullAfter    time.Duration
}

// Suggest returns, for each rate, the policy with the smallest capacity that never rejects the given
// share of the keys, slowest rate first. best is the index of the smallest policy: the one that lets a
// key use the fewest tokens in a window, and of equal ones the slowest.
//
// If there are several rates, Suggest skips a rate whose bucket takes longer to fill than the
// trace lasts, because the trace does not show its effect. It also skips a rate that needs at
// least the capacity of a slower rate. It returns an error if no rate is left.
func (r *Replay) Suggest(share Share, window time.Duration) (candidates []Candidate, best int, err error) {
	length := micros(r.latest - r.first)
	rates := slices.SortedFunc(slices.Values(r.rates), slower)
	for _, rate := range rates {
		c, ok := rate.candidate(share, window)
		if !ok || len(rates) > 1 && c.FullAfter > length {
			continue
		}
		if n := len(candidates); n > 0 && candidates[n-1].Policy.Capacity <= c.Policy.Capacity {
			continue
		}
		candidates = append(candidates, c)
	}
	if len(candidates) == 0 {
		return nil, 0, fmt.Errorf("no policy can be suggested: the trace lasts %v, which is too short to fill any bucket, or its costs exceed every capacity; give a rate", length)
	}
	for i, c := range candidates {
		if c.Max < candidates[best].Max {
			best = i
		}
	}
	return candidates, best, nil
}

func slower(a, b *rate) int {
	return cmp.Compare(float64(a.Refill)/float64(a.Per), float64(b.Refill)/float64(b.Per))
}

// candidate returns the policy with the smallest capacity that never rejects the share of the keys,
// and false if there is none.
func (r *rate) candidate(share Share, window time.Duration) (Candidate, bool) {
	debts := make([]int64, len(r.debts))
	for i := range r.debts {
		debts[i] = r.debts[i].max
	}
	slices.Sort(debts)
	served := share.of(len(debts))
	if served < 1 || debts[served-1] == math.MaxInt64 {
		return Candidate{}, false
	}
	token := r.units.CostUnits(1)
	capacity := max((debts[served-1]+token-1)/token, 1)
	rejected, _ := slices.BinarySearch(debts, capacity*token+1)
	p := r.Burst(capacity)
	return Candidate{
		Policy:       p,
		KeysRejected: int64(len(debts) - rejected),
		Max:          float64(capacity) + float64(p.Refill)*float64(window)/float64(p.Per),
		FullAfter:    adapter.UnitsOf(p).Decision(0, 0).ResetAfter,
	}, true
}

// RoundRates returns the default rates for Suggest: 1, 2, 5, 10, 20 and 30 per hour and per
// minute, and 1 to 1000 per second.
func RoundRates() []limit.Policy {
	var rates []limit.Policy
	for _, per := range []func(int64) limit.Policy{limit.PerHour, limit.PerMinute} {
		for _, n := range []int64{1, 2, 5, 10, 20, 30} {
			rates = append(rates, per(n))
		}
	}
	for _, n := range []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000} {
		rates = append(rates, limit.PerSecond(n))
	}
	return rates
}
