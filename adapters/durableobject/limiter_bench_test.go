package durableobject_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// BenchmarkLimiter measures decisions by the Worker and, in the same run, by Redis, over loopback: the time
// that a network and Cloudflare add is missing.
func BenchmarkLimiter(b *testing.B) {
	worker, redisServer := workerdtest.Start(b), redistest.Start(b)
	redisClient := redisServer.Client(b)
	for _, store := range []struct {
		name string
		new  func(limit.Policy) limit.Limiter
	}{
		{"Worker", func(p limit.Policy) limit.Limiter { return durableobject.NewLimiter(newClient(worker), p) }},
		{"Redis", func(p limit.Policy) limit.Limiter { return redis.NewLimiter(redisClient, p) }},
	} {
		for _, bb := range []struct {
			name     string
			parallel int // callers for each processor; 0 for one caller
			policy   limit.Policy
		}{
			{"allowed, 1 caller", 0, limit.PerSecond(1000).Burst(1_000_000)},
			{"allowed, 64 callers per processor", 64, limit.PerSecond(1000).Burst(1_000_000)},
			{"denied, 1,000 keys", 0, limit.PerHour(1)},
		} {
			b.Run(store.name+", "+bb.name, func(b *testing.B) {
				l := store.new(bb.policy)
				for n := range int64(1000) {
					consume(b, l, user(fmt.Sprint(n)), min(bb.policy.Capacity, 1))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var n atomic.Int64
				call := func() {
					if _, err := limit.Consume(b.Context(), l, user(fmt.Sprint(n.Add(1)%1000)), 1); err != nil {
						b.Error(err)
					}
				}
				if bb.parallel > 0 {
					b.SetParallelism(bb.parallel)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							call()
						}
					})
				} else {
					for range b.N {
						call()
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}
