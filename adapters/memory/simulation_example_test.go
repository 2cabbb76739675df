package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// Recorded requests are decided at the times at which they were made.
func ExampleNewSimulation() {
	now := time.Date(2026, 9, 1, 23, 59, 0, 0, time.UTC)
	quota := memory.NewSimulation(func() time.Time { return now }).NewQuota(limit.QuotaPolicy{Max: 2, Period: limit.Day})
	for _, after := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second} {
		now = now.Add(after)
		d, err := limit.Consume(context.Background(), quota, limit.Key{"user", "ann"}, 1)
		fmt.Println(now.Format(time.TimeOnly), d.Allowed, d.RetryAfter, err)
	}
	// Output:
	// 23:59:00 true 0s <nil>
	// 23:59:10 true 0s <nil>
	// 23:59:30 false 30s <nil>
	// 00:00:00 true 0s <nil>
}
