package limit

import (
	"fmt"
	"time"
)

// A QuotaPolicy admits at most Max in each calendar hour, day, week or month of a time zone. All of it
// returns at the start of the next one, so a client can spend twice Max around midnight.
type QuotaPolicy struct {
	Name     string         // separates policies that share a store
	Max      int64          // per period, from 1 to 2^51
	Period   Period         // Hour if 0
	Location *time.Location // of the calendar; UTC if nil

	// Start returns a date at which a period of a key starts, such as that of the customer's contract: weeks
	// of the key then start on that day of the week, and months on that day of the month, or on the last
	// day of a shorter month. Only the date in Location counts, which may be in the future; the zero Time stands
	// for Monday and the first of the month. Start must return quickly, and the same date for a key
	// on all processes. If the date of a key changes, the period in which it has taken tokens continues until its end. If
	// nil, all keys have the periods of the calendar. It must be nil for Hour and Day.
	Start func(Key) time.Time
}

// A Period is a unit of the calendar.
type Period uint8

// The periods. A Day, a Week and a Month begin when the clocks first show their date, which is at
// midnight unless the clocks change then; a Day has 23 or 25 hours when daylight saving time
// begins or ends. A Week begins on Monday. An Hour that a change of the clocks repeats counts twice, and
// one within which the clocks change counts as two.
const (
	Hour Period = iota
	Day
	Week
	Month
)

// String returns the name of the period in lower case.
func (p Period) String() string {
	if p > Month {
		return fmt.Sprintf("Period(%d)", p)
	}
	return [...]string{"hour", "day", "week", "month"}[p]
}

// Validate returns an error that says what is wrong with the policy and what would be right.
// Constructors of limiters panic with it.
func (p QuotaPolicy) Validate() error {
	switch {
	case p.Max < 1 || p.Max > maxFull:
		return p.errorf("Max is %d; it must be from 1 to %d", p.Max, int64(maxFull))
	case p.Period > Month:
		return p.errorf("Period is %d; it must be Hour, Day, Week or Month", p.Period)
	case p.Start != nil && p.Period < Week:
		return p.errorf("Start is set for a period of one %v; it needs Week or Month", p.Period)
	}
	return nil
}

func (p QuotaPolicy) errorf(format string, args ...any) error {
	return policyErrorf("quota", p.Name, format, args...)
}

// Description describes the quota. Its Window is nominal: an hour, 24 hours, 7 days, or 31 days.
func (p QuotaPolicy) Description() Description {
	window := time.Hour
	switch p.Period {
	case Day:
		window = 24 * time.Hour
	case Week:
		window = 7 * 24 * time.Hour
	case Month:
		window = 31 * 24 * time.Hour
	}
	return Description{Name: p.Name, Limit: p.Max, Window: window}
}

// Bounds returns when the period of a key that contains t begins, and when the next one does. Periods
// follow each other without gaps and without overlaps. It is for adapters. The policy must be
// valid.
func (p QuotaPolicy) Bounds(key Key, t time.Time) (start, end time.Time) {
	loc := p.Location
	if loc == nil {
		loc = time.UTC
	}
	t = t.In(loc)
	if p.Period == Hour {
		return hourBounds(t)
	}
	weekday, monthDay := time.Monday, 1
	if p.Start != nil {
		if from := p.Start(key); !from.IsZero() {
			weekday, monthDay = from.In(loc).Weekday(), from.In(loc).Day()
		}
	}
	first := p.firstDate(dateOf(t), weekday, monthDay)
	start = firstMoment(first, loc)
	for {
		first = p.nextDate(first, monthDay)
		end = firstMoment(first, loc)
		if t.Before(end) {
			return start, end
		}
		// Clocks that go back shortly after midnight show the end of a day again. That time
		// belongs to the new day.
		start = end
	}
}

// dateOf returns the date that the clocks show at t, as midnight in UTC.
func dateOf(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// firstDate returns the first date of the period that contains a date.
func (p QuotaPolicy) firstDate(date time.Time, weekday time.Weekday, monthDay int) time.Time {
	switch p.Period {
	case Week:
		return date.AddDate(0, 0, -int((date.Weekday()-weekday+7)%7))
	case Month:
		if first := dayOfMonth(date, 0, monthDay); !first.After(date) {
			return first
		}
		return dayOfMonth(date, -1, monthDay)
	default:
		return date
	}
}

// nextDate returns the first date of the period after the one with that first date.
func (p QuotaPolicy) nextDate(first time.Time, monthDay int) time.Time {
	switch p.Period {
	case Week:
		return first.AddDate(0, 0, 7)
	case Month:
		return dayOfMonth(first, 1, monthDay)
	default:
		return first.AddDate(0, 0, 1)
	}
}

// dayOfMonth returns a day of the month that is some months after that of a date, or the last day of a
// shorter month.
func dayOfMonth(date time.Time, months, day int) time.Time {
	year, month, _ := date.Date()
	last := time.Date(year, month+time.Month(months)+1, 0, 0, 0, 0, 0, time.UTC)
	return last.AddDate(0, 0, min(day-last.Day(), 0))
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
func firstMoment(midnight time.Time, loc *time.Location) time.Time {
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
