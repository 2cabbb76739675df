package durableobject

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
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
