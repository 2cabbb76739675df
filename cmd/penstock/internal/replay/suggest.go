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

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A rate has buckets as large as can be, and remembers how deep each was drained. A bucket
// of that size would have refused nothing, and one a token smaller would have.
type rate struct {
	ratelimit.Policy // with the largest valid capacity

	units ratelimit.Units
	debts []debt // by key
}

type debt struct {
	endsAt int64 // in units since the epoch
	most   int64 // in units; math.MaxInt64 if no bucket is large enough
}

func newRate(p ratelimit.Policy) *rate {
	const most = 1 << 51 // no policy holds more
	p = p.Burst(int64(sort.Search(most, func(n int) bool { return p.Burst(int64(n)+1).Validate() != nil && n > 0 })))
	return &rate{Policy: p, units: p.Units()}
}

func (r *rate) take(key int, micros, cost int64) {
	d := &r.debts[key]
	now, need := micros*r.units.PerMicro(), r.units.Need(cost)
	owed := max(d.endsAt-now, 0)
	if need > r.units.Full()-owed {
		d.most = math.MaxInt64
		return
	}
	d.endsAt = now + owed + need
	d.most = max(d.most, owed+need)
}

// A Share is a part of all keys, exactly.
type Share struct{ percent *big.Rat }

// ParseShare reads "p99" or "p99.9": so many percent.
func ParseShare(text string) (Share, error) {
	digits := strings.TrimPrefix(text, "p")
	percent, ok := new(big.Rat).SetString(digits)
	if !ok || strings.Trim(digits, "0123456789.") != "" || percent.Sign() <= 0 || percent.Cmp(big.NewRat(100, 1)) > 0 {
		return Share{}, fmt.Errorf("%q is not a share of the keys; write p99 or p99.9, up to p100", text)
	}
	return Share{percent}, nil
}

// Percent returns the share in percent, as a decimal number of up to six places.
func (s Share) Percent() string {
	text := s.percent.FloatString(6)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// of returns the least number of n keys that is that share of them.
func (s Share) of(n int) int {
	keys := new(big.Rat).Mul(s.percent, big.NewRat(int64(n), 100))
	whole, rest := new(big.Int).QuoRem(keys.Num(), keys.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return int(whole.Int64()) + 1
	}
	return int(whole.Int64())
}

// A Candidate is the smallest burst at a rate that never refuses a share of the keys.
type Candidate struct {
	Policy      ratelimit.Policy
	KeysRefused int64
	Most        float64 // tokens that one key can take in the window
	FillsIn     time.Duration
}

// Suggest returns, of each rate, the smallest capacity by which at least the share of the keys is
// never refused anything, slowest rate first, and which of them is the smallest policy: the one that
// lets a key take the least in any window, and of equals the slowest.
//
// A rate whose bucket takes longer to fill than the trace lasts is left out, because the trace
// cannot tell whether it would do; not so if it is the only one. A rate that needs no smaller
// bucket than a slower one is left out too. It is an error if none is left.
func (r *Replay) Suggest(share Share, window time.Duration) (candidates []Candidate, best int, err error) {
	lasted := micros(r.latest - r.first)
	rates := slices.SortedFunc(slices.Values(r.rates), slower)
	for _, rate := range rates {
		c, ok := rate.candidate(share, window)
		if !ok || len(rates) > 1 && c.FillsIn > lasted {
			continue
		}
		if n := len(candidates); n > 0 && candidates[n-1].Policy.Capacity <= c.Policy.Capacity {
			continue
		}
		candidates = append(candidates, c)
	}
	if len(candidates) == 0 {
		return nil, 0, fmt.Errorf("no policy can be suggested: the trace lasts %v, which is shorter than every bucket takes to fill, or its costs are beyond every bucket; give a rate", lasted)
	}
	for i, c := range candidates {
		if c.Most < candidates[best].Most {
			best = i
		}
	}
	return candidates, best, nil
}

func slower(a, b *rate) int {
	return cmp.Compare(float64(a.Refill)/float64(a.Per), float64(b.Refill)/float64(b.Per))
}

// candidate returns the smallest capacity of a rate that serves a share of the keys, and
// false if none does.
func (r *rate) candidate(share Share, window time.Duration) (Candidate, bool) {
	most := make([]int64, len(r.debts))
	for i := range r.debts {
		most[i] = r.debts[i].most
	}
	slices.Sort(most)
	served := share.of(len(most))
	if served < 1 || most[served-1] == math.MaxInt64 {
		return Candidate{}, false
	}
	token := r.units.Need(1)
	capacity := max((most[served-1]+token-1)/token, 1)
	refused, _ := slices.BinarySearch(most, capacity*token+1)
	p := r.Burst(capacity)
	return Candidate{
		Policy:      p,
		KeysRefused: int64(len(most) - refused),
		Most:        float64(capacity) + float64(p.Refill)*float64(window)/float64(p.Per),
		FillsIn:     p.Units().Decide(0, 0).ResetAfter,
	}, true
}

// RoundRates are the rates that Suggest looks at if none is given: 1, 2, 5, 10, 20 and 30
// an hour and a minute, and up to 1000 a second.
func RoundRates() []ratelimit.Policy {
	var rates []ratelimit.Policy
	for _, per := range []func(int64) ratelimit.Policy{ratelimit.PerHour, ratelimit.PerMinute} {
		for _, n := range []int64{1, 2, 5, 10, 20, 30} {
			rates = append(rates, per(n))
		}
	}
	for _, n := range []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000} {
		rates = append(rates, ratelimit.PerSecond(n))
	}
	return rates
}
