package durableobject

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A clock is an http.RoundTripper that sends the Worker its time.
type clock struct{ *batchtest.Clock }

func newClock() clock { return clock{batchtest.NewClock()} }

// RoundTrip sends a request with the time.
func (c clock) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(workerdtest.ClockHeader, strconv.FormatInt(c.Server.Load(), 10))
	return http.DefaultTransport.RoundTrip(r)
}

// newTestClient returns a client of a server with a test clock.
func newTestClient(s *workerdtest.Server, c clock) *Client {
	client := NewClient(s.URL, s.Secret, &Options{HTTPClient: &http.Client{Transport: c}})
	client.now = func() time.Duration { return time.Duration(c.Local.Load()) }
	client.calls = batch.New("durableobject: limiter", busyTimeout, client.exec, true)
	return client
}

// busyTimeout is that of a call on a busy machine, where workerd may take longer than a limiter waits.
const busyTimeout = 30 * time.Second

// newTestLimiter returns a limiter whose records have a prefix.
func newTestLimiter(client *Client, p limit.Policy, prefix string) *Limiter {
	l := NewLimiter(client, p)
	l.name = keyname.ASCII(prefix + keyname.OfPolicy(p))
	return l
}

// startServer starts the Worker in workerd, which npm must install first: in the full tier.
func startServer(t testing.TB, options ...func(*workerdtest.Options)) *workerdtest.Server {
	t.Helper()
	testscale.FullOnly(t, "TestLimiter_ReplyIsADecision")
	return workerdtest.Start(t, options...)
}

func startTestClock(t testing.TB, shards int) *workerdtest.Server {
	t.Helper()
	return startServer(t, func(o *workerdtest.Options) {
		o.TestClock = true
		o.Variables["SHARDS"] = strconv.Itoa(shards)
	})
}

func harness(s *workerdtest.Server) limittest.Harness {
	c, prefix := newClock(), rand.Text()
	client := newTestClient(s, c)
	return limittest.Harness{
		New:    func(p limit.Policy) limit.Limiter { return newTestLimiter(client, p, prefix) },
		Shared: true,
		Sleep:  c.Sleep,
		Rewind: c.Rewind,
	}
}

func TestLimiter_Contract(t *testing.T) {
	t.Run("one object", func(t *testing.T) {
		t.Parallel()
		s := startTestClock(t, 1)
		testContract(t, s, limittest.Cases(), testscale.Tiers(1, 1, 5))
		for _, c := range testscale.SoakSample(limittest.Cases(), 3) {
			t.Run("in AllOf: "+c.Name, func(t *testing.T) { c.Run(t, limittest.WithAllOf(harness(s))) })
		}
	})
	t.Run("8 objects", func(t *testing.T) {
		t.Parallel()
		testContract(t, startTestClock(t, 8), testscale.SoakSample(limittest.Cases(), 3), 1)
	})
}

func testContract(t *testing.T, s *workerdtest.Server, cases []limittest.Case, groups int) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(s)) })
	}
	for _, c := range limittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(s)) })
	}
	t.Run("AllOf", func(t *testing.T) { limittest.AllOf(t, harness(s)) })
	t.Run("policies change", func(t *testing.T) { limittest.PolicyChanges(t, harness(s), groups) })
	t.Run("equals the model", func(t *testing.T) { limittest.EqualsModel(t, harness(s), groups) })
	t.Run("clock goes backwards", func(t *testing.T) { limittest.ClockGoesBackwards(t, harness(s), groups) })
}

// TestLimiter_BlockKeepsItsLengthIfClockGoesBackwards moves the clock of the object back during a block.
func TestLimiter_BlockKeepsItsLengthIfClockGoesBackwards(t *testing.T) {
	s, c := startTestClock(t, 1), newClock()
	l := newTestLimiter(newTestClient(s, c), limit.PerSecond(10).Named("block"), "")
	for n, call := range []func(limit.Key) (limit.Decision, error){
		func(k limit.Key) (limit.Decision, error) { return limit.Consume(t.Context(), l, k, 1) },
		func(k limit.Key) (limit.Decision, error) { return limit.Reserve(t.Context(), l, k, 1, time.Second) },
		func(k limit.Key) (limit.Decision, error) { return limit.ConsumeKeeping(t.Context(), l, k, 1, 1) },
	} {
		key := limit.Key{"user", strconv.Itoa(n)}
		require.NoError(t, l.Block(t.Context(), key, time.Minute))
		c.Sleep(10 * time.Second)
		c.Rewind(24 * time.Hour)
		for range 2 {
			d, err := call(key)
			require.NoError(t, err)
			assert.Equal(t, []any{time.Minute, limit.Blocked}, []any{d.RetryAfter, d.Reason})
		}
		c.Sleep(59 * time.Second)
		d, err := call(key)
		require.NoError(t, err)
		assert.Equal(t, []any{time.Second, limit.Blocked}, []any{d.RetryAfter, d.Reason})
		c.Sleep(time.Second)
		d, err = call(key)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	}
}

// TestLimiter_BackwardClockForgivesNoDeficit moves the clock back after a reservation, whose
// tokens would otherwise be granted twice.
func TestLimiter_BackwardClockForgivesNoDeficit(t *testing.T) {
	s, c := startTestClock(t, 1), newClock()
	l := newTestLimiter(newTestClient(s, c), limit.PerSecond(1).Burst(10).Named("deficit"), "")
	ann := limit.Key{"user", "ann"}
	for range 2 {
		d, err := limit.Reserve(t.Context(), l, ann, 10, time.Minute)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	c.Rewind(time.Hour)
	d, err := limit.Consume(t.Context(), l, ann, 1)
	require.NoError(t, err)
	assert.Equal(t, 11*time.Second, d.RetryAfter)
	c.Sleep(11 * time.Second)
	d, err = limit.Consume(t.Context(), l, ann, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}

func TestLimiter_SetPolicyNeedsTheSameName(t *testing.T) {
	client := NewClient("http://127.0.0.1:1", "secret", nil)
	unnamed := NewLimiter(client, limit.PerHour(5))
	require.ErrorContains(t, unnamed.SetPolicy(limit.PerHour(6)), "give it a name")
	require.ErrorContains(t, unnamed.SetPolicy(limit.PerHour(6).Named("x")), "give it a name")
	named := NewLimiter(client, limit.PerHour(5).Named("x"))
	require.ErrorContains(t, named.SetPolicy(limit.PerHour(6).Named("y")), `named "x"`)
	require.ErrorContains(t, named.SetPolicy(limit.PerHour(0).Named("x")), "durableobject: ")
	assert.Equal(t, []limit.Description{{Name: "x", Limit: 5, Window: time.Hour, Refill: 1, Per: 12 * time.Minute}}, named.Describe())
	require.NoError(t, named.SetPolicy(limit.PerMinute(6).Named("x")))
	assert.Equal(t, []limit.Description{{Name: "x", Limit: 6, Window: time.Minute, Refill: 1, Per: 10 * time.Second}}, named.Describe())
}
