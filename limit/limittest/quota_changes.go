package limittest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// quotaPolicyChanges calls quotas of one name and different numbers, periods and locations: those
// of processes, as during a rolling deployment, or one whose policy changes. From the first to the
// last grant by a policy in one of its periods, at most its Max is granted. In every interval, at
// most the largest Max is granted, and as many again at each start of a period.
func quotaPolicyChanges(t *testing.T, h quotaHarness, processes bool) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(25, 26))}
	for n := range h.rounds() {
		name := "changes-" + strconv.FormatBool(processes) + strconv.Itoa(n)
		policies := []limit.QuotaPolicy{randomQuota(t, r, name), randomQuota(t, r, name), randomQuota(t, r, name)}
		if n%3 == 0 {
			policies[1].Period, policies[1].Location, policies[1].Start = policies[0].Period, policies[0].Location, policies[0].Start
			policies = policies[:2]
		}
		with := h.withPolicies(t, policies, processes)
		longest := time.Duration(0)
		for _, p := range policies {
			longest = max(longest, p.Description().Window)
		}
		start := h.Now()
		var grants grantLog
		periods := make([]struct {
			end     time.Time
			granted int64
		}, len(policies)) // in which each quota has granted last
		for range 100 {
			n := r.rng.IntN(len(policies))
			tokens, wait := r.grant(t, with(n), policies[n].Max, adapter.MaxReserve)
			spent := h.Now().Add(wait)
			grants.add(spent.Sub(start), tokens)
			if _, end := policies[n].Bounds(key("ann"), spent); tokens > 0 && !end.Equal(periods[n].end) {
				periods[n].end, periods[n].granted = end, 0
			}
			for other := range periods {
				periods[other].granted += tokens
			}
			if tokens > 0 {
				require.LessOrEqual(t, periods[n].granted, policies[n].Max, "in a period of %+v, policies %+v", policies[n], policies)
			}
			h.Sleep(r.sleep(longest / time.Duration(1+r.rng.IntN(30))))
		}
		grants.requireQuotaBound(t, policies, start)
		requireRetryAfter(t, h, with, len(policies), func(n int) int64 { return policies[n].Max })
	}
}

// quotaRecordsKeepTheirPeriods changes the period of a key that has reserved, and of one that has
// taken nothing.
func quotaRecordsKeepTheirPeriods(t *testing.T, h quotaHarness) {
	ctx := context.Background()
	hour := limit.QuotaPolicy{Name: "keep", Max: 3, Period: limit.Hour}
	day := limit.QuotaPolicy{Name: "keep", Max: 10, Period: limit.Day}
	with := h.withPolicies(t, []limit.QuotaPolicy{hour, day}, false)
	sleepUntil(h, day, 50*time.Minute)
	consume(t, with(0), key("ann"), 3)
	d, err := limit.Reserve(ctx, with(0), key("ann"), 2, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute, d.RetryAfter)
	require.NoError(t, limit.Charge(ctx, with(1), key("ann"), 1))
	assert.Equal(t, 10*time.Minute, consume(t, with(1), key("ann"), 1).RetryAfter, "the charge does not delay the period of the reservation")
	h.Sleep(10 * time.Minute)
	assert.EqualValues(t, 7, consume(t, with(1), key("ann"), 1).Remaining)

	consume(t, with(1), key("bob"), 2)
	require.NoError(t, limit.Refund(ctx, with(1), key("bob"), 2))
	assert.Equal(t, time.Hour, consume(t, with(0), key("bob"), 1).ResetAfter, "a key without tokens has the periods of the policy")
}

func (l *grantLog) requireQuotaBound(t *testing.T, policies []limit.QuotaPolicy, start time.Time) {
	t.Helper()
	most := int64(0)
	for _, p := range policies {
		most = max(most, p.Max)
	}
	for first := range l.at {
		begins := map[int64]bool{} // starts of periods since the first grant
		granted := l.tokens[first]
		for last := first + 1; last < len(l.at); last++ {
			granted += l.tokens[last]
			for _, p := range policies {
				for at := start.Add(l.at[last-1]); ; {
					_, end := p.Bounds(key("ann"), at)
					if end.After(start.Add(l.at[last])) {
						break
					}
					begins[end.UnixMicro()] = true
					at = end
				}
			}
			bound := most * int64(1+len(begins))
			require.LessOrEqual(t, granted, bound, "within %v, policies %+v", l.at[last]-l.at[first], policies)
		}
	}
}
