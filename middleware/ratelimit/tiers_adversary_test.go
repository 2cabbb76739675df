package ratelimit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// An adversary changes its tier as it likes, to be admitted more than any tier allows.
type adversary struct {
	tiers    map[string]limit.Limiter
	admit    router.IngressFunc
	tier     string
	cost     int64
	start    time.Time
	policies map[string]limit.Policy
	granted  []grant
}

type grant struct {
	at     time.Duration
	tokens int64
}

func newAdversary(policies map[string]limit.Policy) *adversary {
	a := &adversary{tiers: map[string]limit.Limiter{}, policies: policies, start: time.Now()}
	for name, p := range policies {
		a.tiers[name] = memory.NewLimiter(p.Named(name))
	}
	a.admit = ratelimit.Tiers(func(router.IngressContext) string { return a.tier }, a.tiers, &ratelimit.Options{
		Key:  ratelimit.KeyPerUser,
		Cost: func(router.IngressContext) int64 { return a.cost },
	})
	return a
}

// names returns the tiers in a fixed order.
func (a *adversary) names() []string { return slices.Sorted(maps.Keys(a.tiers)) }

// best returns the tier with the most tokens left.
func (a *adversary) best(t *testing.T) string {
	var best string
	most := int64(-1)
	for _, name := range a.names() {
		d, err := limit.Consume(t.Context(), a.tiers[name], ratelimit.KeyPerUser(from("ann")), 0)
		require.NoError(t, err)
		if d.Remaining > most {
			best, most = name, d.Remaining
		}
	}
	return best
}

// send reports whether a message of the tier and cost is admitted.
func (a *adversary) send(t *testing.T, tier string, cost int64) bool {
	a.tier, a.cost = tier, cost
	if a.admit(t.Context(), from("ann")) != nil {
		return false
	}
	a.granted = append(a.granted, grant{time.Since(a.start), cost})
	return true
}

// excess returns the most tokens that any interval was granted above the highest rate times its
// duration, rounded up. It must not be above the largest capacity.
func (a *adversary) excess() int64 {
	var perHour, most, tokens int64
	for _, p := range a.policies {
		perHour = max(perHour, p.Refill)
	}
	const hour = int64(time.Hour)
	unused := int64(0) // the largest of rate*time - tokens before a grant, in tokens/hour*nanoseconds
	for i, g := range a.granted {
		before := perHour*int64(g.at) - tokens*hour
		if i == 0 || before > unused {
			unused = before
		}
		tokens += g.tokens
		most = max(most, tokens*hour-perHour*int64(g.at)+unused)
	}
	return (most + hour - 1) / hour
}

// TestTiers_ChangesOfTierGrantNoMoreThanTheLargestTier lets adversaries change tiers for an
// hour. In every interval, they are granted at most the largest capacity plus the highest rate
// times the interval: before each grant, some bucket holds its cost, so the fullest bucket loses
// exactly that cost. It refills at the highest rate at most, and holds the largest capacity at most.
func TestTiers_ChangesOfTierGrantNoMoreThanTheLargestTier(t *testing.T) {
	for name, policies := range map[string]map[string]limit.Policy{
		"larger and faster":  {"free": limit.PerHour(600), "pro": limit.PerHour(1200)},
		"equal capacities":   {"free": limit.PerHour(600).Burst(16), "pro": limit.PerHour(1200).Burst(16)},
		"larger but slower":  {"free": limit.PerHour(600), "pro": limit.PerHour(1200).Burst(16)},
		"three, with primes": {"free": limit.PerHour(607).Burst(11), "pro": limit.PerHour(1201).Burst(13), "max": limit.PerHour(1213).Burst(7)},
	} {
		var capacity int64
		for _, p := range policies {
			capacity = max(capacity, p.Capacity)
		}
		for strategy, play := range map[string]func(*testing.T, *adversary, *rand.Rand){
			"best tier at every moment": playBest, "alternating": playAlternating, "at random": playRandomly, "in bursts": playBursts,
		} {
			t.Run(fmt.Sprint(name, ", ", strategy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAdversary(policies)
					play(t, a, rand.New(rand.NewPCG(1, 2)))
					assert.LessOrEqual(t, a.excess(), capacity)
					var total int64
					for _, g := range a.granted {
						total += g.tokens
					}
					assert.Greater(t, total, testscale.Pick[int64](30, 100), "the adversary is not starved")
				})
			})
		}
	}
}

func (a *adversary) play(step func()) {
	for time.Since(a.start) < testscale.Pick(20*time.Minute, time.Hour) {
		step()
	}
}

func playBest(t *testing.T, a *adversary, _ *rand.Rand) {
	a.play(func() {
		for a.send(t, a.best(t), 1) {
		}
		time.Sleep(100 * time.Millisecond)
	})
}

// sleep sleeps for whole milliseconds, so that the clock of the limiters is not rounded.
func sleep(rng *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(most.Milliseconds())) * time.Millisecond)
}

// playAlternating changes the tier after each message, and tries every tier at every moment.
func playAlternating(t *testing.T, a *adversary, _ *rand.Rand) {
	names := a.names()
	a.play(func() {
		for i := 0; i < len(names); i++ {
			if a.send(t, names[i], 1) {
				i = -1
				slices.Reverse(names)
			}
		}
		time.Sleep(250 * time.Millisecond)
	})
}

func playRandomly(t *testing.T, a *adversary, rng *rand.Rand) {
	names := a.names()
	a.play(func() {
		for range 8 {
			a.send(t, names[rng.IntN(len(names))], 1+rng.Int64N(13))
		}
		sleep(rng, 2*time.Second)
	})
}

// playBursts is lazy: it waits for up to 20 minutes, and takes what it can at different costs.
func playBursts(t *testing.T, a *adversary, rng *rand.Rand) {
	a.play(func() {
		for cost := int64(13); cost > 0; cost-- {
			for range 2000 {
				if !a.send(t, a.best(t), cost) {
					break
				}
			}
			for _, name := range a.names() {
				a.send(t, name, cost)
			}
		}
		if rng.IntN(3) == 0 {
			sleep(rng, 20*time.Minute)
		} else {
			sleep(rng, 5*time.Second)
		}
	})
}
