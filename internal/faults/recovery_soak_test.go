//go:build unix

package faults_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// soakFaults is the number of injections in a run of the soak test.
const soakFaults = 5

// TestSoak repeats runs of random scenarios with random faults for the time of the soak test. A
// third of the runs overlap two faults. SOAK_SEED is the seed of the first run, whose number
// the log of each run contains; the next runs have the next seeds.
func TestSoak(t *testing.T) {
	testscale.SoakOnly(t, "TestRecovery_EveryClientReceivesEveryPublicationOnce")
	redistest.Start(t) // skips the test without redis-server
	seed := uint64(now())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "SOAK_SEED")
	}
	var total counts
	injections := map[string]int{}
	runs, overlapped := 0, 0
	defer func() {
		t.Logf("%d runs, %d with overlapping faults: %+v", runs, overlapped, total)
		for _, s := range scenarios() {
			for _, f := range slices.Concat(s.faults, s.last) {
				t.Logf("%4d times: %s", injections[f.name], f.name)
			}
		}
	}()
	for end := time.Now().Add(testscale.Soak()); time.Now().Before(end) && !t.Failed(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := randomScenario(rng)
		overlap := rng.IntN(3) == 0
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Logf("seed %d, %s, overlapping: %v", seed, s.name, overlap)
			r := startRecovery(t, s.kind, seed)
			for _, faults := range s.schedule(rng, overlap) {
				r.inject(rng, faults...)
				for _, f := range faults {
					injections[f.name]++
				}
			}
			total.add(r.finish(s.ratio).counts)
			runs++
			if overlap {
				overlapped++
			}
		})
	}
}

// randomScenario prefers scenarios with many faults.
func randomScenario(rng *rand.Rand) scenario {
	var all []scenario
	for _, s := range scenarios() {
		all = append(all, slices.Repeat([]scenario{s}, len(s.faults)+len(s.last))...)
	}
	return all[rng.IntN(len(all))]
}

// schedule returns the faults of a run: those in a row are injected at the same time.
func (s *scenario) schedule(rng *rand.Rand, overlap bool) (faults [][]*recoveryFault) {
	candidates := slices.Concat(s.faults, nodeFaults[:1])
	for range soakFaults {
		row := []*recoveryFault{&candidates[rng.IntN(len(candidates))]}
		if overlap {
			row = append(row, s.other(rng, row[0].target))
		}
		faults = append(faults, row)
	}
	if len(s.last) > 0 {
		faults = append(faults, []*recoveryFault{&s.last[rng.IntN(len(s.last))]})
	}
	return faults
}

// other returns a fault that can overlap one with a target.
func (s *scenario) other(rng *rand.Rand, target string) *recoveryFault {
	candidates := slices.Concat(s.faults, nodeFaults)
	candidates = slices.DeleteFunc(candidates, func(f recoveryFault) bool { return f.target == target })
	return &candidates[rng.IntN(len(candidates))]
}
