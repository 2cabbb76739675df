package limittest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

type quotaHarness = WindowHarness[limit.QuotaPolicy]

// QuotaCases returns the rules of a quota.
func QuotaCases() []WindowCase[limit.QuotaPolicy] {
	cases := commonCases(func(name string, maximum int64) limit.QuotaPolicy {
		return limit.QuotaPolicy{Name: name, Max: maximum, Period: limit.Month}
	})
	return append(cases,
		WindowCase[limit.QuotaPolicy]{"the period is half-open", quotaIsHalfOpen},
		WindowCase[limit.QuotaPolicy]{"equals the model", quotaEqualsModel},
		WindowCase[limit.QuotaPolicy]{"the policy changes", quotaPolicyChanges},
		WindowCase[limit.QuotaPolicy]{"the clock goes back to the period before", quotaStepBack},
		WindowCase[limit.QuotaPolicy]{"the clock goes back further", quotaStepFarBack},
	)
}

// sleepUntil sleeps until the period after the present one has begun d ago.
func sleepUntil(h quotaHarness, p limit.QuotaPolicy, d time.Duration) {
	_, end := p.Bounds(key("ann"), h.Now())
	h.Sleep(end.Sub(h.Now()) + d)
}

func quotaIsHalfOpen(t *testing.T, h quotaHarness) {
	p := limit.QuotaPolicy{Name: "half-open", Max: 3, Period: limit.Hour}
	l := h.New(p)
	sleepUntil(h, p, time.Hour-time.Microsecond)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: time.Microsecond}, consume(t, l, key("ann"), 2))
	assert.Equal(t, limit.Decision{Limit: 3, Remaining: 1, RetryAfter: time.Microsecond, ResetAfter: time.Microsecond}, consume(t, l, key("ann"), 2))
	h.Sleep(time.Microsecond)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: time.Hour}, consume(t, l, key("ann"), 2))
	h.Sleep(time.Hour - time.Microsecond)
	assert.Equal(t, limit.Decision{Limit: 3, Remaining: 1, RetryAfter: time.Microsecond, ResetAfter: time.Microsecond}, consume(t, l, key("ann"), 2))
}

// A quotaModel is the tokens of every period by its name on the calendar.
type quotaModel struct {
	policy limit.QuotaPolicy
	counts map[string]int64
}

// period returns the name of the period that contains a time. It is right for zones whose clocks
// change by whole hours, at whole hours and not at midnight.
func (m *quotaModel) period(at int64) string {
	local := time.UnixMicro(at).In(m.policy.Location)
	switch m.policy.Period {
	case limit.Month, limit.Week:
		return m.firstDate(local)
	case limit.Day:
		return local.Format("2006-01-02")
	default:
		return local.Format("2006-01-02 15 -0700")
	}
}

// firstDate goes back day by day to the one at which a week or a month starts.
func (m *quotaModel) firstDate(local time.Time) string {
	weekday, monthDay := time.Monday, 1
	if m.policy.Start != nil {
		from := m.policy.Start(key("ann")).In(m.policy.Location)
		weekday, monthDay = from.Weekday(), from.Day()
	}
	for day := time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC); ; day = day.AddDate(0, 0, -1) {
		isLast := day.AddDate(0, 0, 1).Day() == 1
		switch {
		case m.policy.Period == limit.Week && day.Weekday() == weekday,
			m.policy.Period == limit.Month && (day.Day() == monthDay || isLast && day.Day() < monthDay):
			return day.Format(time.DateOnly)
		}
	}
}

func (m *quotaModel) used(at int64) int64  { return m.counts[m.period(at)] }
func (m *quotaModel) add(at, tokens int64) { m.counts[m.period(at)] += tokens }
func (m *quotaModel) remove(at, tokens, taken int64) {
	if taken == 0 || m.period(taken) == m.period(at) {
		m.counts[m.period(at)] -= min(tokens, m.used(at))
	}
}
func (m *quotaModel) reset() { clear(m.counts) }

func quotaEqualsModel(t *testing.T, h quotaHarness) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(23, 24))}
	for n := range h.rounds() {
		p := randomQuota(t, r, "model-"+strconv.Itoa(n))
		m := &quotaModel{policy: p, counts: map[string]int64{}}
		requireEqualsModel(t, h, h.New(p), m, r, p.Max, (32 * 24 * time.Hour).Microseconds())
	}
}

func randomQuota(t *testing.T, r *randomCalls, name string) limit.QuotaPolicy {
	t.Helper()
	loc, err := time.LoadLocation([]string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"}[r.rng.IntN(4)])
	require.NoError(t, err)
	p := limit.QuotaPolicy{Name: name, Max: 1 + r.rng.Int64N(50), Period: limit.Period(r.rng.IntN(4)), Location: loc}
	if p.Period >= limit.Week && r.rng.IntN(2) == 0 {
		from := time.Date(2024, 1, 1+r.rng.IntN(31), r.rng.IntN(24), 0, 0, 0, time.UTC)
		p.Start = func(limit.Key) time.Time { return from }
	}
	return p
}

// quotaPolicyChanges calls quotas of one name and different numbers, periods and locations, as during
// a rolling deployment. From the first to the last grant of a quota in one of its periods, all of
// them grant at most its Max. In every interval, they grant at most the largest Max, and as many
// again at each start of a period.
func quotaPolicyChanges(t *testing.T, h quotaHarness) {
	if h.Rewind == nil {
		t.Skip("the limiters share no store")
	}
	r := &randomCalls{rng: rand.New(rand.NewPCG(25, 26))}
	for n := range h.rounds() {
		name := "changes-" + strconv.Itoa(n)
		policies := []limit.QuotaPolicy{randomQuota(t, r, name), randomQuota(t, r, name), randomQuota(t, r, name)}
		if n%3 == 0 {
			policies[1].Period, policies[1].Location, policies[1].Start = policies[0].Period, policies[0].Location, policies[0].Start
			policies = policies[:2]
		}
		longest := time.Duration(0)
		var limiters []limit.Resetter
		for _, p := range policies {
			limiters = append(limiters, h.New(p))
			longest = max(longest, p.Description().Window)
		}
		start := h.Now()
		var grants grantLog
		periods := make([]struct {
			end     time.Time
			granted int64
		}, len(policies)) // in which each quota has granted last
		for range 100 {
			n := r.rng.IntN(len(limiters))
			tokens := r.take(t, limiters[n], policies[n].Max)
			grants.add(h.Now().Sub(start), tokens)
			if _, end := policies[n].Bounds(key("ann"), h.Now()); tokens > 0 && !end.Equal(periods[n].end) {
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
		for n, p := range policies {
			consume(t, limiters[n], key("ann"), consume(t, limiters[n], key("ann"), 0).Remaining)
			h.Rewind(0) // a limiter may not know what others have taken since it denied a call
			d := consume(t, limiters[n], key("ann"), p.Max)
			require.False(t, d.Allowed)
			h.Sleep(d.RetryAfter - time.Microsecond)
			require.False(t, consume(t, limiters[n], key("ann"), p.Max).Allowed, "allowed before RetryAfter of %v: %+v", d.RetryAfter, policies)
			h.Sleep(time.Microsecond)
			require.True(t, consume(t, limiters[n], key("ann"), p.Max).Allowed, "denied after RetryAfter of %v: %+v", d.RetryAfter, policies)
		}
	}
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

// quotaStepBack moves the clock back across the start of a period: it grants no quota twice, and
// denies no key beyond the end of the later period.
func quotaStepBack(t *testing.T, h quotaHarness) {
	if h.Rewind == nil {
		t.Skip("the limiters' clock never goes backwards")
	}
	for n, p := range []limit.QuotaPolicy{{Max: 5, Period: limit.Hour}, {Max: 5, Period: limit.Day}, {Max: 5, Period: limit.Month}} {
		p.Name = fmt.Sprint("back-", n)
		l := h.New(p)
		sleepUntil(h, p, time.Minute)
		assert.True(t, consume(t, l, key("ann"), 5).Allowed)
		sleepUntil(h, p, time.Minute)
		assert.True(t, consume(t, l, key("ann"), 3).Allowed)
		_, end := p.Bounds(key("ann"), h.Now())
		h.Rewind(2 * time.Minute)
		left := end.Sub(h.Now())
		assert.Equal(t, limit.Decision{Limit: 5, Remaining: 2, RetryAfter: left, ResetAfter: left}, consume(t, l, key("ann"), 3), "the earlier period is used up, the later one counts")
		assert.True(t, consume(t, l, key("ann"), 2).Allowed)
		sleepUntil(h, p, time.Minute)
		assert.False(t, consume(t, l, key("ann"), 1).Allowed, "the later period is not granted again")
		sleepUntil(h, p, 0)
		assert.True(t, consume(t, l, key("ann"), 5).Allowed)
	}
}

// quotaStepFarBack moves the clock forward and then back by many periods: what was used counts until
// the end of the period that it went to.
func quotaStepFarBack(t *testing.T, h quotaHarness) {
	if h.Rewind == nil {
		t.Skip("the limiters' clock never goes backwards")
	}
	p := limit.QuotaPolicy{Name: "far back", Max: 5, Period: limit.Hour}
	l := h.New(p)
	sleepUntil(h, p, 0)
	assert.True(t, consume(t, l, key("ann"), 5).Allowed)
	h.Sleep(30 * 24 * time.Hour)
	assert.True(t, consume(t, l, key("ann"), 4).Allowed, "a step forward grants the quota of another period")
	h.Rewind(30 * 24 * time.Hour)
	assert.Equal(t, limit.Decision{Limit: 5, Remaining: 1, RetryAfter: time.Hour, ResetAfter: time.Hour}, consume(t, l, key("ann"), 2))
	h.Sleep(time.Hour - time.Microsecond)
	assert.False(t, consume(t, l, key("ann"), 2).Allowed)
	h.Sleep(time.Microsecond)
	assert.True(t, consume(t, l, key("ann"), 5).Allowed, "the denial has stored the earlier period")
}
