package replay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
)

// waiting returns a limiter that reserves tokens, as package ratelimit does with MaxWait.
func waiting(l limit.Limiter, maxWait time.Duration) limit.Limiter {
	return &fakelimiter.Limiter{Do: func(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
		take.MaxWait = maxWait
		return l.Take(ctx, key, take)
	}}
}

// limitersOf returns a policy of each kind, and the limiters that a server would use for it.
func limitersOf(t *testing.T) map[string]func() limit.Limiter {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	bucket := func(p limit.Policy) limit.Limiter { return memory.NewLimiter(p) }
	log := func(n int64, window time.Duration) limit.Limiter {
		return memory.NewSlidingLog(limit.WindowPolicy{Max: n, Window: window})
	}
	counter := func(n int64, window time.Duration) limit.Limiter {
		return memory.NewSlidingCounter(limit.WindowPolicy{Max: n, Window: window})
	}
	quota := func(n int64, period limit.Period, location *time.Location) limit.Limiter {
		return memory.NewQuota(limit.QuotaPolicy{Max: n, Period: period, Location: location})
	}
	return map[string]func() limit.Limiter{
		"7/s burst 40":           func() limit.Limiter { return bucket(limit.PerSecond(7).Burst(40)) },
		"7/s wait 1500ms":        func() limit.Limiter { return waiting(bucket(limit.PerSecond(7)), 1500*time.Millisecond) },
		"sliding-log 30/5s":      func() limit.Limiter { return log(30, 5*time.Second) },
		"sliding-counter 300/1m": func() limit.Limiter { return counter(300, time.Minute) },
		"quota 500/hour":         func() limit.Limiter { return quota(500, limit.Hour, nil) },
		"quota 90/day Europe/Berlin": func() limit.Limiter {
			return quota(90, limit.Day, berlin)
		},
		"quota 300/month": func() limit.Limiter { return quota(300, limit.Month, nil) },
		"cooldown 40/10s penalty 30s": func() limit.Limiter {
			return memory.NewCooldown(limit.CooldownPolicy{Max: 40, Window: 10 * time.Second, Penalty: 30 * time.Second}, nil)
		},
		"9/s burst 40 + 100/m": func() limit.Limiter {
			return limit.AllOf(bucket(limit.PerSecond(9).Burst(40)), bucket(limit.PerMinute(100)))
		},
		"9/s burst 40 + 100/m wait 5s": func() limit.Limiter {
			return waiting(limit.AllOf(bucket(limit.PerSecond(9).Burst(40)), bucket(limit.PerMinute(100))), 5*time.Second)
		},
		"9/s burst 40 + sliding-log 99/m + sliding-counter 300/1h + quota 1000/hour": func() limit.Limiter {
			return limit.AllOf(bucket(limit.PerSecond(9).Burst(40)), log(99, time.Minute), counter(300, time.Hour), quota(1000, limit.Hour, nil))
		},
	}
}

// stretched multiplies the times between the requests.
func stretched(requests []trace.Record, factor int64) []trace.Record {
	first := requests[0].Micros
	for i := range requests {
		requests[i].Micros = first + (requests[i].Micros-first)*factor
	}
	return requests
}

func TestReplay_DecidesLikeEveryKindOfMemoryLimiter(t *testing.T) {
	for text, newLimiter := range limitersOf(t) {
		t.Run(text, func(t *testing.T) {
			policy, err := replay.ParsePolicy(text)
			require.NoError(t, err)
			var total replay.Result
			for seed, factor := range []int64{1, 1, 61, 1009, 20_011, 400_009} {
				requests := stretched(someRequests(rand.New(rand.NewPCG(uint64(seed), 2)), 1000), factor)
				got := requireEqualDecisions(t, policy, newLimiter, requests)
				total.Admitted += got.Admitted
				total.Rejected += got.Rejected - got.NeverAdmitted
				total.Delayed += got.Delayed
			}
			assert.Positive(t, total.Admitted)
			assert.Positive(t, total.Rejected)
			assert.Equal(t, strings.Contains(text, "wait"), total.Delayed > 0)
		})
	}
}

// requireEqualDecisions compares a replay with a limiter that gets the requests at their times.
func requireEqualDecisions(t *testing.T, policy replay.Policy, newLimiter func() limit.Limiter, requests []trace.Record) replay.Result {
	r := replay.New(replay.Options{Policies: []replay.Policy{policy}})
	want := replay.Result{Policy: policy}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.UnixMicro(requests[0].Micros)))
		limiter := newLimiter()
		for i, request := range requests {
			time.Sleep(time.Until(time.UnixMicro(request.Micros)))
			d, err := limit.Consume(t.Context(), limiter, limit.Key{"user", "", request.Key, request.Type}, request.Cost)
			require.NoError(t, err)
			switch {
			case d.Allowed:
				want.Admitted++
			case d.RetryAfter == limit.Never:
				want.Rejected, want.NeverAdmitted = want.Rejected+1, want.NeverAdmitted+1
			default:
				want.Rejected, want.WorstWait = want.Rejected+1, max(want.WorstWait, d.RetryAfter)
			}
			if d.Allowed && d.RetryAfter > 0 {
				want.Delayed, want.LongestDelay = want.Delayed+1, max(want.LongestDelay, d.RetryAfter)
			}
			require.NoError(t, r.Add(request))
			got := r.Results()[0]
			want.PerKey, want.KeysRejected = got.PerKey, got.KeysRejected
			require.Equal(t, want, got, "request %d", i)
		}
	})
	return want
}

// The requests of one node may follow those of another, as files of two directories do.
func TestReplay_KeysKeepTheirOwnTime(t *testing.T) {
	for text := range limitersOf(t) {
		policy, err := replay.ParsePolicy(text)
		require.NoError(t, err)
		opts := replay.Options{Policies: []replay.Policy{policy}, Per: replay.PerKey}
		nodeA := stretched(someRequests(rand.New(rand.NewPCG(1, 3)), 500), 7)
		nodeB := stretched(someRequests(rand.New(rand.NewPCG(2, 3)), 500), 7)
		for i := range nodeB {
			nodeB[i].Key = "other " + nodeB[i].Key
			nodeB[i].Micros -= 3600 * 1e6 * 24 * 40
		}
		a, b := replayAll(t, opts, nodeA...).Results()[0], replayAll(t, opts, nodeB...).Results()[0]
		both := replayAll(t, opts, append(nodeA, nodeB...)...).Results()[0]
		assert.Equal(t, a.Admitted+b.Admitted, both.Admitted, text)
		assert.Equal(t, a.Delayed+b.Delayed, both.Delayed, text)
		assert.Equal(t, max(a.WorstWait, b.WorstWait), both.WorstWait, text)
	}
}

func TestReplay_CountsRequestsOfKeysBeyondTheMaximum(t *testing.T) {
	var policies []replay.Policy
	for _, text := range []string{"sliding-log 1/h", "10/s + sliding-log 1/h", "sliding-counter 1/h", "1/h"} {
		policy, err := replay.ParsePolicy(text)
		require.NoError(t, err)
		policies = append(policies, policy)
	}
	const keys, kept, shards = 70_000, 65_536, 64
	r := replay.New(replay.Options{Policies: policies})
	for i := range int64(keys) {
		require.NoError(t, r.Add(at(i, fmt.Sprint(i), "")))
	}
	for _, result := range r.Results()[:2] {
		assert.GreaterOrEqual(t, result.Overflowed, int64(keys-kept), result.Policy)
		assert.Less(t, result.Overflowed, int64(keys-kept)*5/4, result.Policy) // some shards are full earlier
		assert.InDelta(t, result.Overflowed-shards/2, result.Rejected, shards/2, "each shard admits one of them")
	}
	for _, result := range r.Results()[2:] {
		assert.Zero(t, result.Overflowed, result.Policy)
		assert.Zero(t, result.Rejected, result.Policy)
	}
}
