package guides_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the same time zones on every machine

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// windowBorder draws how many calls three limiters with the same numbers admit in ten seconds.
func windowBorder(t *testing.T) []byte {
	policy := limit.WindowPolicy{Max: 10, Window: 10 * second}
	p := newPicture("At most 10 in 10 seconds, by three limiters",
		"4 calls per second from 8 s to 12 s, then 2 per second; the step line counts what was admitted in the last 10 s", 40*second)
	for _, l := range []struct {
		name    string
		limiter limit.Limiter
		above   int // calls above the dashed line
	}{
		{"sliding-window log: never more than 10", memory.NewSlidingLog(policy), 0},
		{"sliding-window counter: more than 10 if calls came unevenly", memory.NewSlidingCounter(policy), 5},
		{"token bucket: up to 10, and those that return meanwhile", memory.NewLimiter(limit.Per(10, 10*second)), 9},
	} {
		untilWindowBegins(policy.Window)
		c := newClient(t, "ann", ratelimit.New(l.limiter, perUser()))
		var inWindow steps
		play(40*second, func(at time.Duration) {
			if pace(at, 8*second, 12*second, second/4) || pace(at, 12*second, 40*second, second/2) {
				c.call(at)
			}
			inWindow.add(at, admittedSince(c, at-policy.Window))
		})
		p.heading("%s", l.name)
		p.y += 4 * px * l.above
		p.level("in 10 s", inWindow, 10, 40)
		p.dots("admitted", c.admitted)
		p.crosses("rejected", c.rejected)
		p.gap()
	}
	return p.svg(5 * second)
}

// untilWindowBegins waits for the beginning of a fixed window.
func untilWindowBegins(window time.Duration) {
	now := time.Now()
	time.Sleep(now.Truncate(window).Add(window).Sub(now))
}

// admittedSince returns how many calls were admitted after a time.
func admittedSince(c *client, since time.Duration) (n int64) {
	for _, at := range c.admitted {
		if at > since {
			n++
		}
	}
	return n
}

// quota draws two days of a time zone, one of which has 23 hours.
func quota(t *testing.T) []byte {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	midnight := time.Date(2000, 3, 25, 0, 0, 0, 0, berlin)
	time.Sleep(time.Until(midnight))
	limiter := memory.NewQuota(limit.QuotaPolicy{Max: 30, Period: limit.Day, Location: berlin})
	c := newClient(t, "ann", ratelimit.New(limiter, perUser()))
	var left steps
	const span = 71 * time.Hour
	for at := time.Duration(0); at < span; at += 30 * time.Minute {
		time.Sleep(time.Until(midnight.Add(at)))
		left.add(at, c.tokens(limiter)) // before the call, to show the whole quota
		c.call(at)
		left.add(at, c.tokens(limiter))
	}
	p := newPicture("A quota returns at midnight, all of it",
		"30 per day in Berlin; a client that calls twice per hour, while daylight saving time begins", span)
	top := p.y
	p.y += 20 * px
	p.level("left", left, 30, 75)
	p.dots("admitted", c.admitted)
	p.crosses("rejected", c.rejected)
	p.shade("plan", top, 0, 24*time.Hour, "Saturday, 24 hours")
	p.shade("penalty", top, 24*time.Hour, 47*time.Hour, "Sunday, 23 hours")
	p.shade("plan", top, 47*time.Hour, span, "Monday, 24 hours")
	return p.svgIn(12*time.Hour, time.Hour, "hours")
}
