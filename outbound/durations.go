package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file parses durations and times in headers.

// A precision says how much later than stated a duration may end.
type precision int

const (
	exact        precision = iota
	wholeSeconds           // a number of seconds that may have been rounded down
	withinSecond           // a time that may be anywhere within its second
)

// retryAfter returns how long Retry-After demands to wait.
func retryAfter(h http.Header) (time.Duration, bool) {
	d, p, ok := delay(h.Get("Retry-After"), h)
	switch p {
	case wholeSeconds:
		d = max(d, time.Second)
	case withinSecond:
		d += time.Second
	}
	if !ok {
		return 0, false
	}
	return checkDuration(d)
}

// resetAfter returns the time until a reset that a header states. It is at most the length of the window, unless
// that is 0.
func resetAfter(text string, h http.Header, window time.Duration) (time.Duration, bool) {
	d, p, ok := delay(text, h)
	if p != exact {
		d += time.Second
	}
	if window > 0 {
		d = min(d, window)
	}
	if !ok {
		return 0, false
	}
	return checkDuration(d)
}

// delay returns the duration until what a header states as a number of seconds, as a duration, or as a time. A time
// in the past is malformed.
func delay(text string, h http.Header) (time.Duration, precision, bool) {
	text = strings.TrimSpace(text)
	if d, whole, isNumber := seconds(text); isNumber && d <= maxDuration {
		if whole {
			return d, wholeSeconds, true
		}
		return d, exact, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, exact, d >= 0
	}
	at, p, ok := moment(text)
	date := dateOf(h)
	if !ok || at.Before(date) {
		return 0, exact, false
	}
	return at.Sub(date), p, true
}

// moment parses the number of seconds or milliseconds since 1970, or a date.
func moment(text string) (time.Time, precision, bool) {
	if len(text) > len("1470173023") && len(text) <= len("1470173023000") && areDigits(text) {
		milliseconds, err := strconv.ParseInt(text, 10, 64)
		return time.UnixMilli(milliseconds + 1), exact, err == nil // it may have been rounded down
	}
	if since1970, whole, isNumber := seconds(text); isNumber {
		return time.Unix(0, int64(since1970)), precisionOf(whole), true
	}
	text, _, _ = strings.Cut(text, " (") // the name of the zone, in JavaScript
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
		"Mon Jan 02 2006 15:04:05 GMT-0700", http.TimeFormat, time.RFC850, time.ANSIC,
	} { // each accepts decimals
		if at, err := time.Parse(layout, text); err == nil {
			return at, precisionOf(!strings.Contains(text, ".")), at.Year() >= 1970 && at.Year() < 2200
		}
	}
	return time.Time{}, exact, false
}

func precisionOf(whole bool) precision {
	if whole {
		return withinSecond
	}
	return exact
}

// dateOf returns the time of the response, as Date states it: the clock of the server counts. It ignores dates whose
// distance from 1970 time.Duration cannot represent.
func dateOf(h http.Header) time.Time {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil || date.Year() < 1970 || date.Year() >= 2200 {
		return time.Now()
	}
	return date
}

// checkDuration reports whether d is valid, and returns 0 if it is not. It returns 1ns for 0, because a 0 in a
// Status means that the duration is unknown.
func checkDuration(d time.Duration) (time.Duration, bool) {
	if d < 0 || d > maxDuration {
		return 0, false
	}
	return max(d, time.Nanosecond), true
}

// maxSeconds is the start of the year 2200 as a Unix time. time.Duration can represent it.
const maxSeconds = 7_258_118_400

// seconds parses a decimal number of seconds and rounds it up to the nanosecond. whole reports
// that text has no decimal point.
func seconds(text string) (d time.Duration, whole, ok bool) {
	const digits = 9 // a nanosecond is the ninth decimal
	before, after, hasPoint := strings.Cut(text, ".")
	if !areDigits(before) || len(before) > 10 || hasPoint && !areDigits(after) {
		return 0, false, false
	}
	n, err := strconv.ParseInt(before, 10, 64)
	if err != nil || n > maxSeconds {
		return 0, false, false
	}
	d = time.Duration(n) * time.Second
	if !hasPoint {
		return d, true, true
	}
	kept := (after + strings.Repeat("0", digits))[:digits]
	nanos, err := strconv.ParseInt(kept, 10, 64)
	if err != nil {
		return 0, false, false
	}
	if len(after) > digits && strings.Trim(after[digits:], "0") != "" {
		nanos++
	}
	return d + time.Duration(nanos), false, true
}

func areDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
