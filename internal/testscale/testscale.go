// Package testscale says how much of each test runs. The environment variable PENSTOCK_TESTS
// selects it:
//
//	(unset)   the quick tier, which `go test ./...` runs in a fresh clone, and .ci/run with the race detector
//	full      the full tier, which `make test` runs: every test
//	1h        every test in its whole size: tests with random rounds continue for this time each, and
//	          others have all combinations of their parameters
//
// The quick tier runs the same assertions on less: fewer random seeds, connections, cases over the
// same transport, and servers. [Pick], [Tiers], [Sample], [SoakSample] and [Duration] choose an
// amount. A test whose subject cannot be made smaller, such as a failover that takes a server 20
// seconds, begins with [FullOnly], which names a smaller test of the same subject that runs in both
// tiers; a test of this package checks that it exists. To list what is reduced:
//
//	git grep -n testscale -- '*_test.go'
//
// Nothing else decides how much runs: no test reads another variable, [testing.Short], or a flag.
package testscale

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// Variable is the name of the environment variable that selects the tier.
const Variable = "PENSTOCK_TESTS"

// A tier is how much of the tests runs.
type tier struct {
	full bool
	soak time.Duration // of each test with random rounds; 0 means its own
}

// selected reads the environment once per process.
var selected = sync.OnceValue(func() tier { //nolint:gochecknoglobals // a process has one environment
	selected, err := parse(os.Getenv(Variable))
	if err != nil {
		panic(err)
	}
	return selected
})

// parse returns the tier that a value of the environment variable selects.
func parse(value string) (tier, error) {
	switch value {
	case "":
		return tier{}, nil
	case "full":
		return tier{full: true}, nil
	}
	soak, err := time.ParseDuration(value)
	if err != nil || soak <= 0 {
		return tier{}, fmt.Errorf(`testscale: %s is %q; it must be empty, "full", or how long tests with random rounds run, such as "1h"`, Variable, value)
	}
	return tier{full: true, soak: soak}, nil
}

// Pick returns quick in the quick tier and full in the full tier.
func Pick[T any](quick, full T) T {
	if selected().full {
		return full
	}
	return quick
}

// Tiers returns quick in the quick tier, full in the full tier, and soak if PENSTOCK_TESTS is a
// duration. It is for an amount that costs more in the gate than it finds there.
func Tiers[T any](quick, full, soak T) T {
	if Soak() > 0 {
		return soak
	}
	return Pick(quick, full)
}

// Sample returns all items in the full tier, and n random ones in their order in the quick tier.
func Sample[T any](items []T, n int) []T {
	if selected().full {
		return items
	}
	return choose(items, n)
}

// SoakSample returns all items if PENSTOCK_TESTS is a duration, and n random ones in their order in
// the other tiers. It is for combinations of what other tests cover one by one.
func SoakSample[T any](items []T, n int) []T {
	if Soak() > 0 {
		return items
	}
	return choose(items, n)
}

// choose returns n random items in their order.
func choose[T any](items []T, n int) []T {
	if n >= len(items) {
		return items
	}
	sample := make([]T, 0, n)
	for i, item := range items {
		if rand.IntN(len(items)-i) < n-len(sample) {
			sample = append(sample, item)
		}
	}
	return sample
}

// Duration returns how long a test with random rounds runs.
func Duration(quick, full time.Duration) time.Duration {
	if Soak() > 0 {
		return Soak()
	}
	return Pick(quick, full)
}

// Soak returns the duration in PENSTOCK_TESTS, or 0, for tests that then use more connections or
// longer faults.
func Soak() time.Duration { return selected().soak }

// FullOnly skips a test in the quick tier. smaller is the name of a test or example of the same
// package that tests the subject in both tiers; it must be a literal.
func FullOnly(t testing.TB, smaller string) {
	t.Helper()
	if !selected().full {
		t.Skipf("runs with %s=full; %s is its smaller test", Variable, smaller)
	}
}

// SoakOnly skips a test unless PENSTOCK_TESTS is a duration. smaller is as for [FullOnly].
func SoakOnly(t testing.TB, smaller string) {
	t.Helper()
	if Soak() == 0 {
		t.Skipf("runs with %s=1h, for example; %s is its smaller test", Variable, smaller)
	}
}
