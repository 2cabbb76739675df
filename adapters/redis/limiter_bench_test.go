package redis_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// BenchmarkLimiter reports the time of a call, and what a script costs the server.
func BenchmarkLimiter(b *testing.B) {
	whole, fraction := limit.PerSecond(1000).Burst(1_000_000).Named("p"), limit.PerSecond(997).Burst(100_000).Named("p")
	call := func(l *redis.Limiter, b *testing.B, n int64) {
		if _, err := limit.Consume(b.Context(), l, user(fmt.Sprint(n%1000)), 1); err != nil {
			b.Fatal(err)
		}
	}
	for _, bb := range []struct {
		name     string
		policy   limit.Policy
		parallel int
		prepare  int64 // cost of a first call for every key
	}{
		{"allowed", whole, 0, 0},
		{"allowed, fractions", fraction, 0, 0},
		{"allowed, 64 callers", whole, 32, 0},
		{"denied", limit.PerHour(1).Named("p"), 0, 1},
	} {
		b.Run(bb.name, func(b *testing.B) {
			server := redistest.Start(b)
			client := server.Client(b)
			prepared := redis.NewLimiter(client, bb.policy)
			for n := range int64(1000) {
				consume(b, prepared, user(fmt.Sprint(n)), bb.prepare)
			}
			server.ResetStats(b)
			b.ReportAllocs()
			b.ResetTimer()
			switch {
			case bb.parallel > 0:
				l := redis.NewLimiter(client, bb.policy)
				var n atomic.Int64
				b.SetParallelism(bb.parallel)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						call(l, b, n.Add(1))
					}
				})
			default:
				var l *redis.Limiter
				for n := range int64(b.N) {
					if n%1000 == 0 {
						l = redis.NewLimiter(client, bb.policy) // has no denials in its cache
					}
					call(l, b, n)
				}
			}
			b.StopTimer()
			info, err := client.InfoMap(b.Context(), "commandstats").Result()
			if err != nil {
				b.Fatal(err)
			}
			var calls, micros int64
			if _, err := fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d,usec=%d,", &calls, &micros); err == nil {
				b.ReportMetric(float64(micros)/float64(calls), "server-µs/script")
			}
			if bytes := client.MemoryUsage(b.Context(), "penstock:limit:p:user:acme:1:SAY").Val(); bytes > 0 {
				b.ReportMetric(float64(bytes), "B/key")
			}
		})
	}
}
