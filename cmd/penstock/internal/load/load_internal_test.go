package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestHistogram_PercentilesAreThoseOfSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var h histogram
		var all []time.Duration
		for range 1 + rng.IntN(2000) {
			d := time.Duration(rng.Int64N(1 << rng.IntN(50))).Truncate(time.Microsecond)
			all = append(all, d)
			h.add(d)
		}
		slices.Sort(all)
		for _, p := range []float64{50, 90, 99, 99.9, 100} {
			rank := int(p / 100 * float64(len(all)))
			if float64(rank) < p/100*float64(len(all)) {
				rank++
			}
			exact := all[rank-1]
			got := h.percentile(p)
			assert.GreaterOrEqual(t, got, exact)
			assert.LessOrEqual(t, got, exact+exact/128+time.Microsecond)
		}
	}
	assert.Zero(t, (&histogram{}).percentile(99))
}

type Ask struct{ N, Conn int }

func (Ask) MessageType() string { return "ASK" }

func options(url string) Options {
	return Options{
		URL: url, Message: Message{"ASK", `{"N":{{n}},"Conn":{{conn}}}`}, Connections: 4, Ramp: 1000, Rate: 100,
		Duration: 500 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return "ws" + server.URL[len("http"):]
}

func TestRun_CountsRejectionsExactly(t *testing.T) {
	t.Parallel()
	r := router.New(nil)
	limiter := memory.NewLimiter(limit.PerHour(1).Burst(20).Named("ask"))
	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Key: ratelimit.KeyPerType}))
	router.RPC(r, func(_ *router.Context, m Ask) (Ask, error) { return m, nil })
	report, err := Run(t.Context(), options(serve(t, r)))
	require.NoError(t, err)
	assert.Equal(t, 4, report.Connections)
	assert.EqualValues(t, 50, report.Sent+report.NotSent)
	assert.EqualValues(t, 20, report.Answered)
	assert.Equal(t, map[string]int64{"RESOURCE_EXHAUSTED": report.Sent - 20}, report.Rejected)
	assert.Positive(t, report.RetryAfter)
	assert.Zero(t, report.Unanswered)
	assert.Empty(t, report.Lost)
	assert.LessOrEqual(t, report.Latency.P50, report.Latency.P999)
	assert.Positive(t, report.CPU)
}

func TestDue_IsTheSameScheduleForAnyNumberOfConnections(t *testing.T) {
	r := &run{Options: &Options{Rate: 50}, start: time.Unix(0, 0)}
	for _, r.conns = range []int{1, 3, 10} {
		seen := map[int64]time.Time{}
		for turn := range r.conns {
			for n := range 30 / r.conns {
				number, at := (&conn{run: r, slot: &slot{turn: turn}}).due(n)
				seen[number] = at
			}
		}
		for number := range int64(30 / r.conns * r.conns) {
			assert.Equal(t, r.start.Add(time.Duration(number)*20*time.Millisecond), seen[number])
		}
	}
}

// A server that stalls for a second delays all calls that are due in that second. A generator that
// waited for each reply would measure four slow calls of 150, and a p90 of a few milliseconds.
func TestRun_LatenciesContainAStallOfTheServer(t *testing.T) {
	t.Parallel()
	const stall = time.Second
	var started time.Time
	var once sync.Once
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m Ask) (Ask, error) {
		once.Do(func() { started = time.Now() })
		if since := time.Since(started); since > stall/4 && since < stall*5/4 {
			time.Sleep(stall*5/4 - since)
		}
		return m, nil
	}).Serial()
	o := options(serve(t, r))
	o.Duration = stall * 3 / 2
	var progress []Progress
	o.Progress = func(p Progress) { progress = append(progress, p) }
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.EqualValues(t, 150, report.Sent+report.NotSent)
	assert.Equal(t, report.Sent, report.Answered)
	assert.Greater(t, report.Latency.P50, stall/5, "two thirds of the calls are due during the stall")
	assert.Greater(t, report.Latency.P90, stall*4/5)
	assert.Greater(t, report.Latency.P99, stall*19/20)
	require.Len(t, progress, 1)
	assert.Equal(t, []any{4, time.Second, o.Duration}, []any{progress[0].Connections, progress[0].Elapsed, progress[0].Total})
	assert.Less(t, report.Late.P50, report.Latency.P50/2, "the load is not late, whatever the server does")
	assert.Greater(t, report.Steps[3].Latency.P50, stall*4/5, "calls at the beginning of the stall are the slowest")
}

func TestRun_LostConnectionsAreCountedByCloseCode(t *testing.T) {
	t.Parallel()
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m Ask) (Ask, error) {
		ctx.Conn().Close(4000, "enough")
		return m, nil
	})
	o := options(serve(t, r))
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, map[int]int64{4000: 4}, report.Lost)
	assert.Positive(t, report.NotSent)
	assert.EqualValues(t, 50, report.Sent+report.NotSent)
}

func TestRun_LostConnectionsAreOpenedAgain(t *testing.T) {
	t.Parallel()
	r := room(&router.TopicOptions{History: withHistory}, ignore)
	router.RPC(r, func(ctx *router.Context, m Ask) (Ask, error) {
		if m.N == 20 {
			ctx.Conn().Close(4000, "enough")
		}
		return m, ctx.Publish("room", Said{})
	})
	o := options(serve(t, r))
	o.Topic, o.Reconnect, o.Duration = "room", true, 2*time.Second
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, map[int]int64{4000: 1}, report.Lost)
	assert.EqualValues(t, 1, report.Reopened)
	assert.Greater(t, report.Outages.Max, minBackoff)
	assert.Positive(t, report.NotSent)
	assert.EqualValues(t, 200, report.Sent+report.NotSent)
	assert.Equal(t, report.Sent, report.Answered+report.Unanswered)
	assertMissing(t, report)
	assert.Greater(t, report.Reach.Received, report.Reach.Expected/4*3, "the connection has received the rest")
}

func TestRun_ClosesItsConnectionsNormally(t *testing.T) {
	t.Parallel()
	codes := make(chan int, 4)
	r := router.New(&router.Options{OnClose: func(_ *router.Conn, e router.CloseError) { codes <- int(e.Code) }})
	router.RPC(r, func(_ *router.Context, m Ask) (Ask, error) { return m, nil })
	_, err := Run(t.Context(), options(serve(t, r)))
	require.NoError(t, err)
	for range 4 {
		assert.Equal(t, 1000, <-codes)
	}
}

func TestRun_ManyConnections(t *testing.T) {
	r := room(&router.TopicOptions{}, func(ctx *router.Context, m Say) error { return ctx.Publish("room", Said{Text: m.Text}) })
	o := reachOptions(serve(t, r))
	o.Connections, o.Ramp, o.Rate = testscale.Pick(100, 900), 1000, 20 // a router permits 1,000 connections of an address
	o.Timeout = time.Minute
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, o.Connections, report.Connections)
	assert.Empty(t, report.Refused)
	assert.EqualValues(t, 10*o.Connections, report.Reach.Expected)
	assert.Equal(t, report.Reach.Expected, report.Reach.Received)
}

// A server can refuse a connection after the upgrade, so that pages see the reason.
func TestRun_ConnectionsAreRefusedAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	o := options(serve(t, router.New(&router.Options{RefuseAfterUpgrade: true, Limits: router.Limits{ConnsPerIP: 3}})))
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 3, report.Connections)
	assert.Equal(t, map[string]int64{"close code 4429": 1}, report.Refused)
	assert.Empty(t, report.Lost)
}

func TestRun_FailsWithoutAConnection(t *testing.T) {
	_, err := Run(t.Context(), options("ws://127.0.0.1:1"))
	require.ErrorContains(t, err, "no connection could be opened")
	_, err = Run(t.Context(), options(serve(t, http.NotFoundHandler())))
	require.ErrorContains(t, err, "404")
	_, err = Run(t.Context(), Options{Connections: 1 << 40})
	require.ErrorContains(t, err, "1099511627776 connections need 1099511627808 file descriptors, and the limit of this process is ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(ctx, options("ws://127.0.0.1:1"))
	require.Error(t, err)
}
