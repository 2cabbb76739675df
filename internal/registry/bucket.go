package registry

import (
	"math"
	"sync/atomic"
	"time"
)

// Unlimited is the Rate.PerSecond of a bucket that never refuses.
const Unlimited = math.MaxInt

// A Rate bounds how often something happens: PerSecond on average, and Burst at once. Both are positive.
type Rate struct{ PerSecond, Burst int }

// cost returns the time in which tokens return, in nanoseconds.
func (r Rate) cost(tokens int) int64 {
	return int64(float64(tokens) / float64(r.PerSecond) * float64(time.Second))
}

// wait returns how long a bucket that will be full after a time still owes, at least a millisecond unless it is 0.
func (r Rate) wait(full int64) time.Duration {
	if wait := full - r.cost(r.Burst); wait > 0 {
		return max(time.Duration(wait), time.Millisecond)
	}
	return 0
}

// A Bucket is a token bucket: the time at which it will be full. The zero Bucket is full. It is safe for
// concurrent use.
type Bucket struct{ fullAt atomic.Int64 }

// Take takes tokens if there are enough, and returns 0. Otherwise it returns after how long there will
// be, at least a millisecond.
func (b *Bucket) Take(r Rate, now time.Duration, tokens int) (wait time.Duration) {
	if r.PerSecond == Unlimited {
		return 0
	}
	cost := r.cost(tokens)
	for {
		fullAt := b.fullAt.Load()
		next := max(fullAt, int64(now)) + cost
		if wait := r.wait(next - int64(now)); wait > 0 {
			return wait
		}
		if b.fullAt.CompareAndSwap(fullAt, next) {
			return 0
		}
	}
}

// lacks returns what Take would, and takes nothing.
func (b *Bucket) lacks(r Rate, now time.Duration, tokens int) (wait time.Duration) {
	if r.PerSecond == Unlimited {
		return 0
	}
	return r.wait(max(b.fullAt.Load()-int64(now), 0) + r.cost(tokens))
}

// Left returns how many tokens there are, not below 0.
func (b *Bucket) Left(r Rate, now time.Duration) int {
	if r.PerSecond == Unlimited {
		return Unlimited
	}
	missing := time.Duration(max(0, b.fullAt.Load()-int64(now)))
	return max(0, int(float64(r.Burst)-missing.Seconds()*float64(r.PerSecond)))
}

// Owe takes tokens that have been used already. The bucket may then hold less than none.
func (b *Bucket) Owe(r Rate, now time.Duration, tokens int) {
	if r.PerSecond == Unlimited || tokens <= 0 {
		return
	}
	cost := r.cost(tokens)
	for {
		fullAt := b.fullAt.Load()
		if b.fullAt.CompareAndSwap(fullAt, max(fullAt, int64(now))+cost) {
			return
		}
	}
}

// GiveBack returns tokens that Take has taken at this moment: later, some may have returned with time.
func (b *Bucket) GiveBack(r Rate, tokens int) {
	if r.PerSecond != Unlimited {
		b.fullAt.Add(-r.cost(tokens))
	}
}

func (b *Bucket) isFull(now time.Duration) bool { return b.fullAt.Load() <= int64(now) }
