package limit

import (
	"fmt"
	"time"
)

// A QuotaPolicy admits at most Max in each calendar hour, day or month of a time zone. All of it
// returns at the start of the next one, so a client can spend twice Max around midnight.
type QuotaPolicy struct {
	Name     string         // separates policies that share a store
	Max      int64          // per period, from 1 to 2^51
	Period   Period         // Hour if 0
	Location *time.Location // of the calendar; UTC if nil
}

// A Period is a unit of the calendar.
type Period uint8

// The periods. A Day and a Month begin when the clocks first show their date, which is at
// midnight unless the clocks change then; a Day has 23 or 25 hours when daylight saving time
// begins or ends. An Hour that a change of the clocks repeats counts twice, and one within which
// the clocks change counts as two.
const (
	Hour Period = iota
	Day
	Month
)

// String returns the name of the period in lower case.
func (p Period) String() string {
	switch p {
	case Hour:
		return "hour"
	case Day:
		return "day"
	case Month:
		return "month"
	default:
		return fmt.Sprintf("Period(%d)", p)
	}
}

// Validate returns an error that says what is wrong with the policy and what would be right.
// Constructors of limiters panic with it.
func (p QuotaPolicy) Validate() error {
	switch {
	case p.Max < 1 || p.Max > maxFull:
		return p.errorf("Max is %d; it must be from 1 to %d", p.Max, int64(maxFull))
	case p.Period > Month:
		return p.errorf("Period is %d; it must be Hour, Day or Month", p.Period)
	}
	return nil
}

func (p QuotaPolicy) errorf(format string, args ...any) error {
	return policyErrorf("quota", p.Name, format, args...)
}

// Description describes the quota. Its Window is nominal: an hour, 24 hours, or 31 days.
func (p QuotaPolicy) Description() Description {
	window := time.Hour
	switch p.Period {
	case Day:
		window = 24 * time.Hour
	case Month:
		window = 31 * 24 * time.Hour
	}
	return Description{Name: p.Name, Limit: p.Max, Window: window}
}

// Bounds returns when the period that contains t begins, and when the next one does. Periods
// follow each other without gaps and without overlaps. It is for adapters. The policy must be
// valid.
func (p QuotaPolicy) Bounds(t time.Time) (start, end time.Time) {
	loc := p.Location
	if loc == nil {
		loc = time.UTC
	}
	t = t.In(loc)
	if p.Period == Hour {
		return hourBounds(t)
	}
	year, month, day := t.Date()
	nextDay, nextMonth := 1, time.Month(0)
	if p.Period == Month {
		day, nextDay, nextMonth = 1, 0, 1
	}
	start = firstMoment(year, month, day, loc)
	for {
		month, day = month+nextMonth, day+nextDay
		end = firstMoment(year, month, day, loc)
		if t.Before(end) {
			return start, end
		}
		// Clocks that go back shortly after midnight show the end of a day again. That time
		// belongs to the new day.
		start = end
	}
}

// hourBounds returns the bounds of t's hour on the clocks of its zone. If the clocks change
// within an hour, or repeat one, the time before the change and the time after it are two
// periods.
func hourBounds(t time.Time) (start, end time.Time) {
	_, offset := t.Zone()
	into := time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	start = t.Add(-into)
	end = start.Add(time.Hour)
	since, until := zoneBounds(t)
	if !since.IsZero() && start.Before(since) && offsetAt(since.Add(-1)) != offset {
		start = since
	}
	if !until.IsZero() && end.After(until) && offsetAt(until) != offset {
		end = until
	}
	return start, end
}

// zoneBounds is t.ZoneBounds. Where the future changes of a zone are a rule, ZoneBounds ends each
// year after 365 days: on the last day of a leap year it returns an end that is not after t.
func zoneBounds(t time.Time) (since, until time.Time) {
	since, until = t.ZoneBounds()
	if !until.IsZero() && !until.After(t) {
		until = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return since, until
}

func offsetAt(t time.Time) int {
	_, offset := t.Zone()
	return offset
}

// maxOffset is more than any zone of the time zone database has been ahead of UTC.
const maxOffset = 16 * time.Hour

// firstMoment returns when the clocks of loc first show a date or a later one. That is not
// always midnight: daylight saving time may begin at midnight, and zones have skipped a day.
func firstMoment(year int, month time.Month, day int, loc *time.Location) time.Time {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for t := midnight.Add(-maxOffset).In(loc); ; {
		first := midnight.Add(-time.Duration(offsetAt(t)) * time.Second).In(loc)
		since, until := zoneBounds(t)
		if !since.IsZero() && first.Before(since) {
			first = since
		}
		if until.IsZero() || first.Before(until) {
			return first
		}
		t = until
	}
}
