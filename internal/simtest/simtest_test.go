package simtest

import (
	"flag"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/testscale"
)

var (
	oneSeed    = flag.Uint64("seed", math.MaxUint64, "the only seed of TestSeed")
	shrinkTime = flag.Duration("shrink", 20*time.Second, "how long a plan that fails is made smaller")
	runsOfSeed = flag.Int("runs", 1, "how often TestSeed runs a plan that does not fail; the scheduler is not part of the plan")
	firstSeed  = flag.Uint64("first", 1, "the first seed of TestSeeds")
	allSeeds   = flag.Uint64("seeds", 0, "how many seeds TestSeeds has, if not those of its tier")
	stop       = flag.Bool("stop", false, "TestSeeds ends at the first seed that fails, and does not make its plan smaller")
)

// TestSeeds runs one plan after the other, for the time in PENSTOCK_TESTS if there is one. The race detector takes as long for
// one as others for ten.
func TestSeeds(t *testing.T) {
	seeds := testscale.Tiers[uint64](30, 2000, 0)
	if raced {
		seeds /= 50
	}
	if *allSeeds > 0 {
		seeds = *allSeeds
	}
	began := time.Now()
	n, rare, memory := uint64(0), uint64(0), heap{}
	for ; n < seeds || time.Since(began) < testscale.Soak(); n++ {
		if *stop {
			t.Logf("seed %d begins", *firstSeed+n) // the last line if the program ends
		}
		if !runSeed(t, *firstSeed+n) {
			rare++
		}
		if n%100 == 99 {
			memory.check(t, n+1)
		}
	}
	if rare > 2+n/100 {
		t.Errorf("%d of %d seeds have failed in one run of several", rare, n)
	}
	t.Logf("%d seeds from %d on in %v, %.0f per minute", n, *firstSeed, time.Since(began).Round(time.Second), float64(n)/time.Since(began).Minutes())
}

func TestSeed(t *testing.T) {
	if *oneSeed == math.MaxUint64 {
		t.Skip("run with -seed N")
	}
	runSeed(t, *oneSeed)
}

// repetitions is how often a plan that has failed is simulated again. The scheduler is not part of the plan: a problem that does not
// occur in half of the repetitions is printed, and fails the test only together with many others.
const repetitions = 4

// runSeed simulates the plan of a seed, and reports false if that fails once. If the problem repeats, the test fails and prints
// the smallest plan that it finds.
func runSeed(t *testing.T, seed uint64) bool {
	t.Helper()
	p := newPlan(seed)
	var problems []string
	for run := 0; run < *runsOfSeed && len(problems) == 0; run++ {
		problems = simulate(t, p)
	}
	if len(problems) == 0 {
		return true
	}
	if !repeats(t, p, problems) {
		t.Logf("rare: seed %d (%s): %s", seed, p.Mood, problems[0])
		return false
	}
	t.Errorf("seed %d (%s):", seed, p.Mood)
	for _, problem := range problems {
		t.Errorf("\t%s", problem)
	}
	if *stop {
		t.FailNow()
	}
	smaller, last := shrink(t, p, problems, *shrinkTime)
	t.Errorf("%d of %d steps remain:\nsimulate(t, %s)", len(smaller.Steps), len(p.Steps), smaller)
	for _, problem := range last {
		t.Errorf("\t%s", problem)
	}
	return true
}

// repeats reports whether problems of these kinds occur in half of the repetitions.
func repeats(t *testing.T, p plan, problems []string) bool {
	t.Helper()
	again := 0
	for range repetitions {
		if slices.ContainsFunc(simulate(t, p), func(problem string) bool {
			return slices.ContainsFunc(problems, func(before string) bool { return kindOf(before) == kindOf(problem) })
		}) {
			again++
		}
	}
	return again >= repetitions/2
}
