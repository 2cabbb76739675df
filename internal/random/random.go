// Package random is the source of jitter and of choices that need no secret: delays, shuffles, the
// numbers that tell two attempts apart. Product code uses it instead of math/rand/v2, whose global
// functions it calls, so that a test of many nodes can give one seed to all of them. What must be
// secret comes from crypto/rand; a test replaces that with testing/cryptotest.SetGlobalRandom.
//
// All functions are safe for concurrent use. Without [Seed], they cost one atomic load more than
// those of math/rand/v2.
package random

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A Rand generates numbers for one owner, who must not use it concurrently.
type Rand = rand.Rand

// seeded replaces the global functions of math/rand/v2; nil outside a test that has called Seed.
var seeded atomic.Pointer[source] //nolint:gochecknoglobals // it stands in for the global source of math/rand/v2

// A source is a seeded generator that goroutines share.
type source struct {
	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

// Seed makes all functions return numbers that follow from seed, until restore is called. The numbers
// are the same for the same calls in the same order, which concurrent goroutines do not guarantee. It
// is for tests, and panics if another seed is in use: parallel tests of a process cannot share it.
func Seed(seed uint64) (restore func()) {
	s := &source{rand: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // no secret
	if !seeded.CompareAndSwap(nil, s) {
		panic("random: another test has called Seed and has not restored the source")
	}
	return func() { seeded.CompareAndSwap(s, nil) }
}

// An Integer is a type whose values N returns, such as time.Duration.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// N returns a number from 0 to n-1. It panics if n is not positive.
func N[T Integer](n T) T {
	s := seeded.Load()
	if s == nil || n <= 0 {
		return rand.N(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return T(s.rand.Uint64N(uint64(n)))
}

// Uint64 returns any number.
func Uint64() uint64 {
	s := seeded.Load()
	if s == nil {
		return rand.Uint64()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Uint64()
}

// Float64 returns a number from 0 to below 1.
func Float64() float64 {
	s := seeded.Load()
	if s == nil {
		return rand.Float64()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64()
}

// Shuffle orders n elements at random, of which swap exchanges two. It panics if n is negative.
func Shuffle(n int, swap func(i, j int)) {
	if n < 2 {
		return
	}
	New().Shuffle(n, swap) // swap runs without a lock
}

// New returns a generator of its own.
func New() *Rand {
	return rand.New(rand.NewPCG(Uint64(), Uint64())) //nolint:gosec // no secret
}
