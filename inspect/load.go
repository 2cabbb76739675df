package inspect

import (
	"math"
	"runtime/metrics"
	"time"
)

// A load measures the program. It is not safe for concurrent use.
type load struct {
	samples [3]metrics.Sample // the memory, what of it was returned, and how long goroutines waited for a processor
	before  []uint64          // the counts of the latencies at the last time
}

func (l *load) init() {
	for n, name := range []string{"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes", "/sched/latencies:seconds"} {
		l.samples[n].Name = name
	}
	l.read()
}

// read returns the memory of the program, and the time within which 99 of 100 goroutines that were ready have run
// since the last time: those that serve the event loops too, so it is their lag.
func (l *load) read() (memory int64, lag time.Duration) {
	metrics.Read(l.samples[:])
	total, released := l.samples[0].Value, l.samples[1].Value
	if total.Kind() == metrics.KindUint64 && released.Kind() == metrics.KindUint64 {
		memory = int64(total.Uint64() - released.Uint64()) //nolint:gosec // G115: no program has as much
	}
	if h := l.samples[2].Value; h.Kind() == metrics.KindFloat64Histogram {
		lag = l.percentile(h.Float64Histogram())
	}
	return memory, lag
}

// percentile returns the upper bound of 99 of 100 values since the last time.
func (l *load) percentile(h *metrics.Float64Histogram) (lag time.Duration) {
	var all, sum uint64
	added := make([]uint64, len(h.Counts))
	for n, count := range h.Counts {
		added[n] = count
		if n < len(l.before) {
			added[n] -= l.before[n]
		}
		all += added[n]
	}
	l.before = append(l.before[:0], h.Counts...)
	for n, count := range added {
		if sum += count; count > 0 && sum*100 >= all*99 {
			bound := h.Buckets[n+1]
			if math.IsInf(bound, 1) {
				bound = h.Buckets[n]
			}
			return time.Duration(bound * float64(time.Second))
		}
	}
	return 0
}
