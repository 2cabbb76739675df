package limittest

import (
	"context"
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
	cases = append(cases, quotaLeaseCases()...)
	return append(cases,
		WindowCase[limit.QuotaPolicy]{"the period is half-open", quotaIsHalfOpen},
		WindowCase[limit.QuotaPolicy]{"equals the model", quotaEqualsModel},
		WindowCase[limit.QuotaPolicy]{"the policy changes", func(t *testing.T, h quotaHarness) { quotaPolicyChanges(t, h, false) }},
		WindowCase[limit.QuotaPolicy]{"processes have different policies", func(t *testing.T, h quotaHarness) { quotaPolicyChanges(t, h, true) }},
		WindowCase[limit.QuotaPolicy]{"a charge does not carry over", quotaChargeDoesNotCarryOver},
		WindowCase[limit.QuotaPolicy]{"a reservation reaches the next period", quotaReservesNextPeriod},
		WindowCase[limit.QuotaPolicy]{"a reservation waits for short hours", quotaReservesShortHour},
		WindowCase[limit.QuotaPolicy]{"records keep their periods", quotaRecordsKeepTheirPeriods},
		WindowCase[limit.QuotaPolicy]{"the clock goes back to the period before", quotaStepBack},
		WindowCase[limit.QuotaPolicy]{"the clock goes back further", quotaStepFarBack},
		WindowCase[limit.QuotaPolicy]{"the clock goes back further than a reservation", quotaReservationStepsFarBack},
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
	known  []namedPeriod
}

// A namedPeriod is a period and its half-open interval in microseconds since 1970.
type namedPeriod struct {
	name       string
	start, end int64
}

func (m *quotaModel) period(at int64) namedPeriod {
	for _, p := range m.known {
		if p.start <= at && at < p.end {
			return p
		}
	}
	const longest = 32 * 24 * 3_600_000_000
	p := namedPeriod{name: m.name(at)}
	p.start = first(at-longest, longest, func(at int64) bool { return m.name(at) == p.name })
	p.end = first(at, longest, func(at int64) bool { return m.name(at) != p.name })
	m.known = append(m.known, p)
	return p
}

// name returns the name of the period that contains a time. It is right for zones whose clocks
// change by whole hours, at whole hours and not at midnight.
func (m *quotaModel) name(at int64) string {
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

func (m *quotaModel) fits(at, cost int64) bool {
	p := m.period(at)
	return m.counts[m.period(p.end).name] == 0 && m.counts[p.name]+cost <= m.policy.Max
}

// reaches permits the period of a call, and the next one.
func (m *quotaModel) reaches(at, spent, _ int64) bool {
	p := m.period(at)
	return spent < p.end || m.period(p.end) == m.period(spent)
}

func (m *quotaModel) add(at, tokens int64, _ bool) { m.counts[m.period(at).name] += tokens }

func (m *quotaModel) remove(at, tokens, spent int64) {
	p := m.period(at)
	for _, p := range []namedPeriod{m.period(p.end), p} {
		if spent == 0 || m.period(spent) == p {
			removed := min(tokens, m.counts[p.name])
			m.counts[p.name] -= removed
			tokens -= removed
		}
	}
}

func quotaEqualsModel(t *testing.T, h quotaHarness) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(23, 24))}
	for n := range h.rounds() {
		p := randomQuota(t, r, "model-"+strconv.Itoa(n))
		newModel := func() windowModel { return &quotaModel{policy: p, counts: map[string]int64{}} }
		requireEqualsModel(t, h, h.New(p), newModel, r, p.Max, (3 * 32 * 24 * time.Hour).Microseconds())
	}
}

func randomQuota(t *testing.T, r *randomCalls, name string) limit.QuotaPolicy {
	t.Helper()
	loc, err := time.LoadLocation([]string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"}[r.rng.IntN(4)])
	require.NoError(t, err)
	p := limit.QuotaPolicy{Name: name, Max: 1 + r.rng.Int64N(50), Period: limit.Period(r.rng.IntN(4)), Location: loc}
	if r.rng.IntN(2) == 0 {
		p.Period = limit.Hour // in which reservations reach the next one
	}
	if p.Period >= limit.Week && r.rng.IntN(2) == 0 {
		from := time.Date(2024, 1, 1+r.rng.IntN(31), r.rng.IntN(24), 0, 0, 0, time.UTC)
		p.Start = func(limit.Key) time.Time { return from }
	}
	return p
}

// quotaChargeDoesNotCarryOver charges more than all periods of a year have.
func quotaChargeDoesNotCarryOver(t *testing.T, h quotaHarness) {
	p := limit.QuotaPolicy{Name: "carry", Max: 3, Period: limit.Hour}
	l := h.New(p)
	sleepUntil(h, p, time.Minute)
	for range 2 {
		require.NoError(t, limit.Charge(context.Background(), l, key("ann"), 1<<60))
	}
	left := 59 * time.Minute
	assert.Equal(t, limit.Decision{Limit: 3, RetryAfter: left, ResetAfter: left}, consume(t, l, key("ann"), 1))
	h.Sleep(left - time.Microsecond)
	assert.False(t, consume(t, l, key("ann"), 1).Allowed)
	h.Sleep(time.Microsecond)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, ResetAfter: time.Hour}, consume(t, l, key("ann"), 3))
}

// quotaReservesNextPeriod reserves all of the next period, and nothing of the one after it.
func quotaReservesNextPeriod(t *testing.T, h quotaHarness) {
	p := limit.QuotaPolicy{Name: "next", Max: 3, Period: limit.Hour}
	l, ctx := h.New(p), context.Background()
	reserve := func(cost int64) limit.Decision {
		d, err := limit.Reserve(ctx, l, key("ann"), cost, time.Hour)
		require.NoError(t, err)
		return d
	}
	sleepUntil(h, p, 50*time.Minute)
	consume(t, l, key("ann"), 2)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, RetryAfter: 10 * time.Minute, ResetAfter: 70 * time.Minute}, reserve(2))
	assert.Equal(t, limit.Decision{Limit: 3, RetryAfter: 10 * time.Minute, ResetAfter: 70 * time.Minute}, consume(t, l, key("ann"), 1), "it does not overtake")
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, RetryAfter: 10 * time.Minute, ResetAfter: 70 * time.Minute}, reserve(1))
	assert.Equal(t, limit.Decision{Limit: 3, RetryAfter: 10 * time.Minute, ResetAfter: 70 * time.Minute}, reserve(1), "the period after the next one")
	h.Sleep(10 * time.Minute)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, RetryAfter: time.Hour, ResetAfter: 2 * time.Hour}, reserve(1))
}

// quotaReservesShortHour reserves before and in a period of half an hour, which a change of the
// clocks by that time makes.
func quotaReservesShortHour(t *testing.T, h quotaHarness) {
	loc, err := time.LoadLocation("Australia/Lord_Howe")
	require.NoError(t, err)
	p := limit.QuotaPolicy{Name: "short", Max: 1, Period: limit.Hour, Location: loc}
	_, start := p.Bounds(key("ann"), h.Now())
	for {
		_, end := p.Bounds(key("ann"), start)
		if end.Sub(start) == 30*time.Minute {
			break
		}
		start = end
	}
	l := h.New(p)
	h.Sleep(start.Add(-10 * time.Minute).Sub(h.Now()))
	for _, want := range []limit.Decision{
		{Allowed: true, Limit: 1, ResetAfter: 10 * time.Minute},
		{Allowed: true, Limit: 1, RetryAfter: 10 * time.Minute, ResetAfter: 40 * time.Minute},
		{Limit: 1, RetryAfter: 10 * time.Minute, ResetAfter: 40 * time.Minute},
	} {
		d, err := limit.Reserve(context.Background(), l, key("ann"), 1, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, want, d)
	}
	h.Sleep(10 * time.Minute)
	assert.Equal(t, 30*time.Minute, consume(t, l, key("ann"), 1).RetryAfter)
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

// quotaReservationStepsFarBack moves the clock back by many periods after a reservation.
func quotaReservationStepsFarBack(t *testing.T, h quotaHarness) {
	if h.Rewind == nil {
		t.Skip("the limiters' clock never goes backwards")
	}
	p := limit.QuotaPolicy{Name: "reserved far back", Max: 5, Period: limit.Hour}
	l := h.New(p)
	sleepUntil(h, p, time.Second)
	assert.True(t, consume(t, l, key("ann"), 3).Allowed)
	require.Positive(t, reserved(t, l, 4).RetryAfter)
	h.Rewind(30 * 24 * time.Hour)
	d, err := limit.Inspect(context.Background(), l, key("ann"))
	require.NoError(t, err)
	left := time.Hour - time.Second
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 5, ResetAfter: left}, d, "what is reserved counts too")
	assert.Equal(t, limit.Decision{Limit: 5, RetryAfter: left, ResetAfter: left}, consume(t, l, key("ann"), 1))
	h.Sleep(left)
	assert.True(t, consume(t, l, key("ann"), 5).Allowed)
}
