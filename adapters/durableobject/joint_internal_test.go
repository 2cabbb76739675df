package durableobject

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A countingClock counts the requests that pass it.
type countingClock struct {
	clock
	requests *atomic.Int64
}

// RoundTrip sends a request with the time.
func (c countingClock) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.clock.RoundTrip(r)
}

// newJointClient returns a client whose requests have the time of a clock and are counted.
func newJointClient(s *workerdtest.Server, c clock) (*Client, *atomic.Int64) {
	client, requests := newTestClient(s, c), new(atomic.Int64)
	client.http = &http.Client{Transport: countingClock{c, requests}}
	return client, requests
}

// start asks for a key until its object has started, which may take longer than a request on a busy
// machine.
func start(t *testing.T, l limit.Limiter, key limit.Key) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := limit.Inspect(t.Context(), l, key)
		return err == nil
	}, time.Minute, time.Millisecond)
}

// TestJoint_EqualsLimitersInMemory makes random calls to limiters of several kinds, and compares
// what they decide with what limiters in memory decide one after the other. With one object, each
// call is one request.
func TestJoint_EqualsLimitersInMemory(t *testing.T) {
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprint(shards, " objects"), func(t *testing.T) {
			t.Parallel()
			s := startTestClock(t, shards)
			rng := mathrand.New(mathrand.NewPCG(31, uint64(shards)))
			for round := range 20 {
				c := newClock()
				client, requests := newJointClient(s, c)
				for _, name := range []string{"ann", "bob"} {
					start(t, NewLimiter(client, limit.PerHour(1)), limit.Key{"user", name})
				}
				j := newJointModel(client, rng, c)
				for step := range 60 {
					before := requests.Load()
					j.step(t, rng, fmt.Sprintf("round %d, step %d", round, step))
					if shards == 1 {
						require.LessOrEqual(t, requests.Load()-before, int64(1))
					}
					j.pause(t, rng)
				}
			}
		})
	}
}

// A jointModel has limiters of all kinds with random policies in Durable Objects and in memory.
type jointModel struct {
	clock         clock
	remote, local []limit.Limiter
	penalties     [2]int // that the cooldowns of each have started
	last          limit.Decision
	undo          func() error // of the last call; may be nil
}

func newJointModel(client *Client, rng *mathrand.Rand, c clock) *jointModel {
	j := &jointModel{clock: c}
	hook := func(i int) func(limit.Penalty) { return func(limit.Penalty) { j.penalties[i]++ } }
	maximum := func() int64 { return 3 + rng.Int64N(8) }
	name := rand.Text()
	bucket := limit.PerSecond(1 + rng.Int64N(5)).Burst(maximum()).Named(name)
	window := limit.WindowPolicy{Name: name, Max: maximum(), Window: time.Duration(1+rng.Int64N(4000)) * time.Millisecond}
	quota := limit.QuotaPolicy{Name: name, Max: 4 * maximum(), Period: limit.Hour}
	cooldown := limit.CooldownPolicy{Name: name, Max: maximum(), Window: time.Second, Penalty: time.Duration(1+rng.Int64N(3000)) * time.Millisecond}
	q, simulation := NewQuota(client, quota), memory.NewSimulation(c.Now)
	q.records.clock = c.Now
	j.remote = []limit.Limiter{NewLimiter(client, bucket), NewSlidingLog(client, window), NewSlidingCounter(client, window), q, NewCooldown(client, cooldown, hook(0))}
	j.local = []limit.Limiter{
		simulation.NewLimiter(bucket), simulation.NewSlidingLog(window), simulation.NewSlidingCounter(window), simulation.NewQuota(quota), simulation.NewCooldown(cooldown, hook(1)),
	}
	return j
}

func (j *jointModel) step(t *testing.T, rng *mathrand.Rand, at string) {
	t.Helper()
	var there, here []limit.Request
	for _, i := range rng.Perm(len(j.remote))[:1+rng.IntN(len(j.remote))] {
		key, cost := limit.Key{"user", []string{"ann", "bob"}[rng.IntN(2)]}, rng.Int64N(4)
		if rng.IntN(20) == 0 {
			cost = 100 // never allowed
		}
		there = append(there, limit.Request{Limiter: j.remote[i], Key: key, Cost: cost})
		here = append(here, limit.Request{Limiter: j.local[i], Key: key, Cost: cost})
	}
	got, err := limit.Take{Receipt: true}.All(t.Context(), there...)
	require.NoError(t, err)
	want, err := limit.Take{Receipt: true}.All(t.Context(), here...)
	require.NoError(t, err)
	gotReceipt, wantReceipt := got.Receipt, want.Receipt
	got.Receipt, want.Receipt = limit.Receipt{}, limit.Receipt{}
	require.Equal(t, want, got, "%s: %+v", at, there)
	require.Equal(t, wantReceipt == limit.Receipt{}, gotReceipt == limit.Receipt{})
	require.Equal(t, j.penalties[1], j.penalties[0], "%s: the hook of the cooldown", at)
	j.last = got
	j.undo = func() error {
		if err := gotReceipt.UndoAll(t.Context(), there...); err != nil {
			return err
		}
		return wantReceipt.UndoAll(t.Context(), here...)
	}
}

// pause undoes the last call or blocks a key at random, and moves the clock.
func (j *jointModel) pause(t *testing.T, rng *mathrand.Rand) {
	t.Helper()
	if rng.IntN(4) == 0 {
		require.NoError(t, j.undo())
	}
	if i := rng.IntN(40); i < len(j.remote) {
		require.NoError(t, j.remote[i].(limit.Blocker).Block(t.Context(), limit.Key{"user", "ann"}, 300*time.Millisecond))
		require.NoError(t, j.local[i].(limit.Blocker).Block(t.Context(), limit.Key{"user", "ann"}, 300*time.Millisecond))
	}
	pause := time.Duration(rng.Int64N(int64(400 * time.Millisecond))).Truncate(time.Microsecond)
	if rng.IntN(3) == 0 && !j.last.Allowed && j.last.RetryAfter < time.Hour {
		pause = j.last.RetryAfter
	}
	j.clock.Sleep(pause)
	j.clock.Local.Add(int64(2 * batch.CacheTime)) // a remembered denial may not be the longest one
}

// TestJoint_CostsOneRequest counts the paid requests of a bucket and a quota together. The quota
// denies.
func TestJoint_CostsOneRequest(t *testing.T) {
	const calls = 200
	c := newClock()
	client, requests := newJointClient(startTestClock(t, 8), c)
	quota := NewQuota(client, limit.QuotaPolicy{Name: "q", Max: calls, Period: limit.Month})
	quota.records.clock = c.Now
	bucket := NewLimiter(client, limit.PerHour(1000*calls).Named("b"))
	for name, both := range map[string]limit.Limiter{
		"bucket first": limit.AllOf(bucket, quota),
		"quota first":  limit.AllOf(quota, bucket),
	} {
		start(t, bucket, limit.Key{"ann", name})
		count := func(allowed bool, pause time.Duration) int64 {
			t.Helper()
			requests.Store(0)
			for range calls {
				d, err := limit.Consume(t.Context(), both, limit.Key{"ann", name}, 1)
				require.NoError(t, err)
				require.Equal(t, allowed, d.Allowed)
				c.Local.Add(int64(pause))
			}
			return requests.Load()
		}
		assert.EqualValues(t, calls, count(true, 0), "admitted")
		assert.EqualValues(t, calls, count(false, 2*batch.CacheTime), "denied, and not remembered")
		assert.EqualValues(t, 1, count(false, 0), "denied and remembered from the first one on")
		d, err := limit.Inspect(t.Context(), bucket, limit.Key{"ann", name})
		require.NoError(t, err)
		assert.EqualValues(t, 999*calls, d.Remaining, "a denied call takes nothing")
	}
}

// TestJoint_KeysInSeveralObjects has keys that no single object can decide about.
func TestJoint_KeysInSeveralObjects(t *testing.T) {
	c := newClock()
	client, requests := newJointClient(startServer(t, func(o *workerdtest.Options) {
		o.TestClock = true
		o.Variables["SHARDS"], o.Variables["HASH_SEED"] = "3", "seed" // the same keys are in one object each time
	}), c)
	users, rooms := NewLimiter(client, limit.PerHour(5).Named("users")), NewSlidingLog(client, limit.WindowPolicy{Name: "rooms", Max: 3, Window: time.Hour})
	split := 0
	for n := range 20 {
		user, room := limit.Key{"user", strconv.Itoa(n)}, limit.Key{"room", strconv.Itoa(n)}
		start(t, users, user)
		start(t, rooms, room)
		requests.Store(0)
		for i := range 4 {
			d, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: users, Key: user, Cost: 1}, limit.Request{Limiter: rooms, Key: room, Cost: 1})
			require.NoError(t, err)
			require.Equal(t, i < 3, d.Allowed)
		}
		if requests.Load() > 4 {
			split++
		}
		d, err := limit.Inspect(t.Context(), users, user)
		require.NoError(t, err)
		assert.EqualValues(t, 2, d.Remaining, "what the denied call took is undone")
	}
	assert.Greater(t, split, 5, "some pairs of keys are in different objects")
	assert.Less(t, split, 20, "others are in one")
}

// TestJoint_RejectsOneRecordTwice: each part would decide without what the other takes.
func TestJoint_RejectsOneRecordTwice(t *testing.T) {
	client := NewClient("http://127.0.0.1:1", "secret", nil)
	one, two := NewQuota(client, limit.QuotaPolicy{Name: "same", Max: 1}), NewQuota(client, limit.QuotaPolicy{Name: "same", Max: 2})
	_, err := limit.Consume(t.Context(), limit.AllOf(one, two), limit.Key{"ann"}, 1)
	require.ErrorContains(t, err, `two requests charge "quota:same::ann"; give the policies of the limiters different names`)
	other := NewQuota(NewClient("http://127.0.0.1:1", "secret", nil), limit.QuotaPolicy{Name: "other", Max: 1})
	assert.False(t, one.BatchesWith(other), "another client may be one of another Worker")
	assert.True(t, one.BatchesWith(NewLimiter(client, limit.PerHour(1))))
}
