package durableobject

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"
	"time"

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
	l.records.name = keyname.ASCII(prefix + keyname.OfPolicy(p))
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
