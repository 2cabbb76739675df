package rawclient

import (
	"encoding/json"
	"strconv"
	"time"
)

// A backoff says when the next connection may be opened (section 5).
type backoff struct {
	attempts int
	last     int // the code with which the previous connection has ended
}

// next returns the delay before the next attempt, after a connection that was open for so long has
// ended. stop says that the client must not come back.
func (b *backoff) next(end ending, open time.Duration, jitter func(time.Duration) time.Duration) (delay time.Duration, stop bool) {
	if open >= 5*time.Second {
		b.attempts = 0
	}
	previous := b.last
	b.last = end.code
	hint, hinted, never := retryAfter(end.reason)
	switch {
	case end.code == 4403 || end.code == 4409:
		return 0, true
	case never && end.code >= 4000:
		return 0, true
	case end.code == 4401 && previous == 4401, violated(end.code) && violated(previous):
		return 0, true
	}
	upper := min(500*time.Millisecond<<min(b.attempts, 10), 20*time.Second)
	first := b.attempts == 0
	b.attempts++
	delay = 100*time.Millisecond + jitter(upper) + hint
	switch {
	case hinted:
	case end.code == 1013 || end.code == 4429:
		delay += 5 * time.Second
	case first && (end.code == 1012 || end.code == 4503):
		delay += jitter(10 * time.Second)
	}
	return delay, false
}

func violated(code int) bool { return code == 1002 || code == 1003 || code == 1007 }

// retryAfter returns the delay in the reason of a close frame, and whether there is one or null.
func retryAfter(reason string) (delay time.Duration, ok, never bool) {
	var e Error
	if json.Unmarshal([]byte(reason), &e) != nil || e.Code == "" {
		return 0, false, false
	}
	return e.retryAfter()
}

func (e *Error) retryAfter() (delay time.Duration, ok, never bool) {
	if len(e.RetryAfterMs) == 0 {
		return 0, false, false
	}
	if string(e.RetryAfterMs) == "null" {
		return 0, false, true
	}
	ms, err := strconv.ParseUint(string(e.RetryAfterMs), 10, 40)
	return time.Duration(ms) * time.Millisecond, err == nil, false //nolint:gosec // 40 bits
}
