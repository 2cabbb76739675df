package simtest

import (
	"flag"
	"math"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/testscale"
)

var (
	oneSeed    = flag.Uint64("seed", math.MaxUint64, "the only seed of TestSeed")
	shrinkTime = flag.Duration("shrink", 0, "how long a plan that fails is made smaller")
	runsOfSeed = flag.Int("runs", 1, "how often TestSeed runs a plan that does not fail; the scheduler is not part of the plan")
	firstSeed  = flag.Uint64("first", 1, "the first seed of TestSeeds")
)

// TestSeeds runs one plan after the other.
func TestSeeds(t *testing.T) {
	seeds := testscale.Pick[uint64](200, 2000)
	began := time.Now()
	n, memory := uint64(0), heap{}
	for ; n < seeds || time.Since(began) < testscale.Soak(); n++ {
		runSeed(t, *firstSeed+n)
		if n%100 == 99 {
			memory.check(t, n+1)
		}
	}
	t.Logf("%d seeds in %v", n, time.Since(began))
}

func TestSeed(t *testing.T) {
	if *oneSeed == math.MaxUint64 {
		t.Skip("run with -seed N")
	}
	runSeed(t, *oneSeed)
}

// runSeed simulates the plan of a seed. If it fails, and -shrink is set, the test prints the smallest plan that does.
func runSeed(t *testing.T, seed uint64) {
	t.Helper()
	p := newPlan(seed)
	var problems []string
	for run := 0; run < *runsOfSeed && len(problems) == 0; run++ {
		problems = simulate(t, p)
	}
	if len(problems) == 0 {
		return
	}
	t.Errorf("seed %d (%s):", seed, p.Mood)
	for _, problem := range problems {
		t.Errorf("\t%s", problem)
	}
	if *shrinkTime > 0 {
		smaller, last := shrink(t, p, problems, *shrinkTime)
		t.Errorf("%d of %d steps remain:\nsimulate(t, %s)", len(smaller.Steps), len(p.Steps), smaller)
		for _, problem := range last {
			t.Errorf("\t%s", problem)
		}
	}
}
