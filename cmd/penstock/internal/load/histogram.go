package load

import (
	"math/bits"
	"time"
)

// A histogram counts durations in buckets whose width grows with the duration: a percentile is at
// most 1/128 above the exact one, and its memory does not grow. The zero histogram is empty.
type histogram struct {
	counts [buckets]int64
	total  int64
	max    time.Duration
}

const (
	subBits = 7 // each power of two has 128 buckets
	buckets = (64 - subBits + 1) << subBits
)

// bucketOf returns the bucket of a number of microseconds.
func bucketOf(micros uint64) int {
	if micros < 1<<subBits {
		return int(micros)
	}
	shift := bits.Len64(micros) - subBits - 1
	return (shift+1)<<subBits + int(micros>>shift) - 1<<subBits
}

// upperOf returns the largest number of microseconds of a bucket.
func upperOf(bucket int) uint64 {
	if bucket < 1<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	return (uint64(bucket&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d.Microseconds()))]++
	h.total++
	h.max = max(h.max, d)
}

// percentile returns the duration that p percent of the others do not exceed, by the nearest-rank
// method.
func (h *histogram) percentile(p float64) time.Duration {
	rank := int64(p / 100 * float64(h.total))
	if float64(rank) < p/100*float64(h.total) {
		rank++
	}
	for bucket, n := range h.counts {
		if rank -= n; rank <= 0 && n > 0 {
			return min(time.Duration(upperOf(bucket))*time.Microsecond, h.max)
		}
	}
	return h.max
}

// Percentiles describe durations.
type Percentiles struct{ P50, P90, P99, P999, Max time.Duration }

func (h *histogram) percentiles() Percentiles {
	return Percentiles{h.percentile(50), h.percentile(90), h.percentile(99), h.percentile(99.9), h.max}
}
