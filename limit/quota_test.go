package limit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("the time zone database is missing: %v", err)
	}
	return loc
}

func TestQuotaPolicy_Bounds(t *testing.T) {
	for _, tt := range []struct {
		name, zone          string
		period              limit.Period
		at, wantStart, want string // in UTC
	}{
		{"hour in UTC", "UTC", limit.Hour, "2024-05-01 10:59:59", "2024-05-01 10:00:00", "2024-05-01 11:00:00"},
		{"start of an hour", "UTC", limit.Hour, "2024-05-01 10:00:00", "2024-05-01 10:00:00", "2024-05-01 11:00:00"},
		{"hour of a zone with half hours", "Asia/Kolkata", limit.Hour, "2024-05-01 10:29:00", "2024-05-01 09:30:00", "2024-05-01 10:30:00"},
		{"hour of a zone with quarters", "Asia/Kathmandu", limit.Hour, "2024-05-01 10:10:00", "2024-05-01 09:15:00", "2024-05-01 10:15:00"},
		{"first of two equal hours", "Europe/Berlin", limit.Hour, "2024-10-27 00:30:00", "2024-10-27 00:00:00", "2024-10-27 01:00:00"},
		{"second of two equal hours", "Europe/Berlin", limit.Hour, "2024-10-27 01:30:00", "2024-10-27 01:00:00", "2024-10-27 02:00:00"},
		{"hour before a skipped one", "Europe/Berlin", limit.Hour, "2024-03-31 00:30:00", "2024-03-31 00:00:00", "2024-03-31 01:00:00"},
		{"hour before half an hour is repeated", "Australia/Lord_Howe", limit.Hour, "2024-04-06 14:50:00", "2024-04-06 14:00:00", "2024-04-06 15:00:00"},
		{"repeated half hour", "Australia/Lord_Howe", limit.Hour, "2024-04-06 15:10:00", "2024-04-06 15:00:00", "2024-04-06 15:30:00"},
		{"hour whose first half is skipped", "Australia/Lord_Howe", limit.Hour, "2024-10-05 15:40:00", "2024-10-05 15:30:00", "2024-10-05 16:00:00"},
		{"day in UTC", "UTC", limit.Day, "2024-02-29 23:59:59", "2024-02-29 00:00:00", "2024-03-01 00:00:00"},
		{"day of 23 hours", "Europe/Berlin", limit.Day, "2024-03-31 10:00:00", "2024-03-30 23:00:00", "2024-03-31 22:00:00"},
		{"day of 25 hours", "Europe/Berlin", limit.Day, "2024-10-27 10:00:00", "2024-10-26 22:00:00", "2024-10-27 23:00:00"},
		{"day without midnight", "America/Santiago", limit.Day, "2024-09-08 10:00:00", "2024-09-08 04:00:00", "2024-09-09 03:00:00"},
		{"day with two midnights", "America/Havana", limit.Day, "2024-11-03 10:00:00", "2024-11-03 04:00:00", "2024-11-04 05:00:00"},
		{"second midnight", "America/Havana", limit.Day, "2024-11-03 05:00:00", "2024-11-03 04:00:00", "2024-11-04 05:00:00"},
		{"last hour of a day is repeated", "America/Santiago", limit.Day, "2024-04-07 03:30:00", "2024-04-06 03:00:00", "2024-04-07 04:00:00"},
		{"date shown again after midnight", "America/St_Johns", limit.Day, "2010-11-07 02:40:00", "2010-11-07 02:30:00", "2010-11-08 03:30:00"},
		{"day before a skipped day", "Pacific/Apia", limit.Day, "2011-12-30 05:00:00", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
		{"day after a skipped day", "Pacific/Apia", limit.Day, "2011-12-30 12:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"},
		{"week", "Europe/Berlin", limit.Week, "2024-05-05 21:59:59", "2024-04-28 22:00:00", "2024-05-05 22:00:00"},
		{"week of 169 hours", "Europe/Berlin", limit.Week, "2024-10-27 12:00:00", "2024-10-20 22:00:00", "2024-10-27 23:00:00"},
		{"week with a skipped day", "Pacific/Apia", limit.Week, "2011-12-30 12:00:00", "2011-12-26 10:00:00", "2012-01-01 10:00:00"},
		{"month", "America/New_York", limit.Month, "2024-03-01 04:59:59", "2024-02-01 05:00:00", "2024-03-01 05:00:00"},
		{"month with a change of the clocks", "America/New_York", limit.Month, "2024-03-15 00:00:00", "2024-03-01 05:00:00", "2024-04-01 04:00:00"},
		{"December", "Asia/Tokyo", limit.Month, "2024-12-31 14:59:59", "2024-11-30 15:00:00", "2024-12-31 15:00:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.DateTime, tt.at)
			require.NoError(t, err)
			p := limit.QuotaPolicy{Max: 1, Period: tt.period, Location: location(t, tt.zone)}
			start, end := p.Bounds(limit.Key{}, at)
			assert.Equal(t, tt.wantStart, start.UTC().Format(time.DateTime), "start")
			assert.Equal(t, tt.want, end.UTC().Format(time.DateTime), "end")
		})
	}
}

// TestQuotaPolicy_StartOfAKey has keys with contracts of different dates.
func TestQuotaPolicy_StartOfAKey(t *testing.T) {
	berlin := location(t, "Europe/Berlin")
	starts := map[string]time.Time{
		"31st":   time.Date(2023, 1, 31, 15, 0, 0, 0, berlin),
		"night":  time.Date(2024, 3, 9, 23, 30, 0, 0, time.UTC), // the 10th in Berlin, a Sunday
		"future": time.Date(2030, 6, 15, 0, 0, 0, 0, berlin),    // a Saturday
	}
	start := func(key limit.Key) time.Time { return starts[key[1]] }
	for _, tt := range []struct {
		key             string
		period          limit.Period
		at, from, until string // dates in Berlin
	}{
		{"31st", limit.Month, "2024-01-31", "2024-01-31", "2024-02-29"},
		{"31st", limit.Month, "2024-02-29", "2024-02-29", "2024-03-31"},
		{"31st", limit.Month, "2024-04-29", "2024-03-31", "2024-04-30"},
		{"31st", limit.Month, "2024-12-31", "2024-12-31", "2025-01-31"},
		{"31st", limit.Week, "2024-05-06", "2024-04-30", "2024-05-07"}, // Tuesdays
		{"night", limit.Month, "2024-05-09", "2024-04-10", "2024-05-10"},
		{"night", limit.Week, "2024-05-09", "2024-05-05", "2024-05-12"},
		{"future", limit.Month, "2024-05-09", "2024-04-15", "2024-05-15"},
		{"future", limit.Week, "2024-05-11", "2024-05-11", "2024-05-18"},
		{"unknown", limit.Month, "2024-05-09", "2024-05-01", "2024-06-01"},
		{"unknown", limit.Week, "2024-05-09", "2024-05-06", "2024-05-13"},
	} {
		at, err := time.ParseInLocation(time.DateOnly, tt.at, berlin)
		require.NoError(t, err)
		p := limit.QuotaPolicy{Max: 1, Period: tt.period, Location: berlin, Start: start}
		from, until := p.Bounds(limit.Key{"customer", tt.key}, at)
		assert.Equal(t, tt.from+" 00:00:00", from.Format(time.DateTime), "%+v", tt)
		assert.Equal(t, tt.until+" 00:00:00", until.Format(time.DateTime), "%+v", tt)
	}
}

// TestQuotaPolicy_PeriodsAreAPartition checks at random times of many zones that each period
// contains its times, that its neighbors touch it, and that only changes of the clocks make it
// shorter or longer than usual.
func TestQuotaPolicy_PeriodsAreAPartition(t *testing.T) {
	zones := []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "Asia/Tehran",
		"Asia/Kathmandu", "Asia/Gaza", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein", "Antarctica/Troll", "Africa/Cairo",
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for _, zone := range zones {
		loc := location(t, zone)
		for _, period := range []limit.Period{limit.Hour, limit.Day, limit.Week, limit.Month} {
			p := limit.QuotaPolicy{Max: 1, Period: period, Location: loc}
			for range 500 {
				at := time.Unix(rng.Int64N(70*365*24*3600), 0)
				if _, change := at.In(loc).ZoneBounds(); rng.IntN(2) == 0 && !change.IsZero() {
					at = change.Add(time.Duration(rng.Int64N(7200)-3600) * time.Second)
				}
				start, end := p.Bounds(limit.Key{}, at)
				require.False(t, at.Before(start) || !at.Before(end), "%v in %s: %v is not from %v to %v", period, zone, at, start, end)
				for _, inside := range []time.Time{start, start.Add(time.Duration(rng.Int64N(int64(end.Sub(start))))), end.Add(-1)} {
					s, e := p.Bounds(limit.Key{}, inside)
					require.True(t, s.Equal(start) && e.Equal(end), "%v in %s: %v is from %v to %v, not from %v to %v", period, zone, inside, s, e, start, end)
				}
				_, before := p.Bounds(limit.Key{}, start.Add(-1))
				require.True(t, before.Equal(start), "%v in %s: the period before %v ends at %v", period, zone, start, before)
				after, _ := p.Bounds(limit.Key{}, end)
				require.True(t, after.Equal(end), "%v in %s: the period after %v starts at %v", period, zone, end, after)
				requireUsualLength(t, p, start, end)
			}
		}
	}
}

// requireUsualLength checks a period within which the clocks do not change.
func requireUsualLength(t *testing.T, p limit.QuotaPolicy, start, end time.Time) {
	t.Helper()
	_, first := start.In(p.Location).Zone()
	_, change := start.In(p.Location).ZoneBounds()
	if !change.IsZero() && !change.After(end) {
		return
	}
	if since, _ := start.In(p.Location).ZoneBounds(); since.Equal(start) {
		return
	}
	days := 1
	switch p.Period {
	case limit.Week:
		days = 7
	case limit.Month:
		local := time.Unix(start.Unix()+int64(first), 0).UTC()
		days = int(local.AddDate(0, 1, 0).Sub(local) / (24 * time.Hour))
	}
	want := time.Duration(days) * 24 * time.Hour
	if p.Period == limit.Hour {
		want = time.Hour
	}
	require.Equal(t, want, end.Sub(start), "%v from %v", p.Period, start)
}

func TestQuotaPolicy_Validate(t *testing.T) {
	right := limit.QuotaPolicy{Name: "x", Max: 1 << 51}
	require.NoError(t, right.Validate())
	for want, edit := range map[string]func(*limit.QuotaPolicy){
		`limit: quota "x": Max is 0; it must be from 1 to 2251799813685248`:                func(p *limit.QuotaPolicy) { p.Max = 0 },
		`limit: quota "x": Max is 2251799813685249; it must be from 1 to 2251799813685248`: func(p *limit.QuotaPolicy) { p.Max++ },
		`limit: quota "x": Period is 4; it must be Hour, Day, Week or Month`:               func(p *limit.QuotaPolicy) { p.Period = 4 },
		`limit: quota "x": Start is set for a period of one day; it needs Week or Month`: func(p *limit.QuotaPolicy) {
			p.Period, p.Start = limit.Day, func(limit.Key) time.Time { return time.Time{} }
		},
	} {
		p := right
		edit(&p)
		assert.EqualError(t, p.Validate(), want)
	}
	assert.Equal(t, "hour day week month Period(4)", fmt.Sprint(limit.Hour, limit.Day, limit.Week, limit.Month, limit.Period(4)))
	assert.Equal(t, limit.Description{Name: "x", Limit: 1 << 51, Window: time.Hour}, right.Description())
	right.Period = limit.Day
	assert.Equal(t, 24*time.Hour, right.Description().Window)
	right.Period = limit.Week
	assert.Equal(t, 7*24*time.Hour, right.Description().Window)
	right.Period = limit.Month
	assert.Equal(t, 31*24*time.Hour, right.Description().Window)
}

func TestWindowPolicy_Validate(t *testing.T) {
	right := limit.WindowPolicy{Name: "x", Max: adapter.MaxLog, Window: time.Second}
	require.NoError(t, right.ValidateLog())
	for want, edit := range map[string]func(*limit.WindowPolicy){
		`limit: window "x": Max is 0; it must be at least 1`:                                            func(p *limit.WindowPolicy) { p.Max = 0 },
		`limit: window "x": Window is 999µs; it must be a whole number of milliseconds, at least 1`:     func(p *limit.WindowPolicy) { p.Window = 999 * time.Microsecond },
		`limit: window "x": Window is 1.0001s; it must be a whole number of milliseconds, at least 1`:   func(p *limit.WindowPolicy) { p.Window = time.Second + 100*time.Microsecond },
		`limit: window "x": Window is 87600h0m0.001s; it must be at most 87600h0m0s`:                    func(p *limit.WindowPolicy) { p.Window = 10*365*24*time.Hour + time.Millisecond },
		`limit: window "x": Max is 2251799813686; with a Window of 1s it must be at most 2251799813685`: func(p *limit.WindowPolicy) { p.Max = 2251799813686 },
	} {
		p := right
		edit(&p)
		assert.EqualError(t, p.Validate(), want)
		assert.EqualError(t, p.ValidateLog(), want)
	}
	right.Max++
	require.NoError(t, right.Validate())
	assert.EqualError(t, right.ValidateLog(), `limit: window "x": Max is 1001; a log keeps at most 1000 calls (for more, use a sliding-window counter or a token bucket)`)
	assert.Equal(t, limit.Description{Name: "x", Limit: 1001, Window: time.Second}, right.Description())
	assert.Equal(t, limit.Description{Name: "y", Limit: 3, Window: time.Hour}, limit.CooldownPolicy{Name: "y", Max: 3, Window: time.Hour, Penalty: time.Second}.Description())
}
