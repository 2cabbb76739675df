package memory

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// BenchmarkConsume_Flood sends each call for a new key to a limiter that is full.
func BenchmarkConsume_Flood(b *testing.B) {
	for _, bench := range []struct {
		name   string
		policy limit.Policy
	}{
		{"buckets fill soon", limit.Per(10, 10*time.Millisecond)},
		{"buckets fill late", limit.PerHour(10)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := NewLimiterMaxKeys(bench.policy, 1<<14)
			keys := make([]limit.Key, 1<<20)
			for i := range keys {
				keys[i] = limit.Key{"ip", strconv.Itoa(i)}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := l.Consume(context.Background(), keys[i], 1); err != nil {
					b.Fatal(err)
				}
				i = (i + 1) % len(keys)
			}
			b.ReportMetric(float64(l.Stats().Overflowed)/float64(b.N), "overflowed/op")
		})
	}
}
