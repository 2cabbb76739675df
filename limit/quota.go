package limit

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
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

// The periods. A Day begins at midnight and has 23 or 25 hours when daylight saving time begins
// or ends; an Hour that a change of the clocks repeats counts twice.
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
	text := fmt.Sprintf(format, args...)
	if p.Name != "" {
		text = fmt.Sprintf("quota %q: %s", p.Name, text)
	}
	return errors.New("limit: " + text)
}

// Bounds returns when the period that contains t begins, and when the next one does. It is for
// adapters. The policy must be valid.
func (p QuotaPolicy) Bounds(t time.Time) (start, end time.Time) {
	loc := p.Location
	if loc == nil {
		loc = time.UTC
	}
	t = t.In(loc)
	year, month, day := t.Date()
	switch p.Period {
	case Month:
		return midnight(year, month, 1, loc), midnight(year, month+1, 1, loc)
	case Day:
		return midnight(year, month, day, loc), midnight(year, month, day+1, loc)
	default:
		// A zone's offset may be no whole number of hours, so the start is computed from
		// the local time; the hour itself always has 60 minutes unless the clocks change in it.
		into := time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
		start = t.Add(-into)
		return start, start.Add(time.Hour)
	}
}

// midnight returns the first moment of a day. Where daylight saving time begins at midnight,
// that is 01:00.
func midnight(year int, month time.Month, day int, loc *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, loc)
	if t.Day() != time.Date(year, month, day, 12, 0, 0, 0, loc).Day() {
		t = time.Date(year, month, day, 1, 0, 0, 0, loc) // normalized into the previous day
	}
	return t
}
