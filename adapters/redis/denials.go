package redis

import (
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// denials remembers what nearly empty buckets held, so that a client that floods costs
// Redis nothing. What a bucket held at one time bounds what it can hold later: who
// needs more than that can be refused here, and the refusal is exact.
type denials struct{ recent[int64] }

// decide refuses what the bucket cannot pay for yet, or returns false: only Redis
// knows.
func (d *denials) decide(hash uint64, now time.Duration, need int64, u *ratelimit.Units) (ratelimit.Decision, bool) {
	known, ok := d.get(hash, now)
	if !ok {
		return ratelimit.Decision{}, false
	}
	// Whether to refuse is counted from the one end of the time in question, and how long
	// to wait from the other: it must be enough.
	shortest, longest := now-known.came, now-known.sent
	if left, is := blockedFor(known.value); is {
		return u.Blocked(left-shortest, need), longest < left
	}
	if need <= held(known.value, longest, u) {
		return ratelimit.Decision{}, false
	}
	return u.Decide(held(known.value, shortest, u), need), true
}

// held is what a bucket holds if nobody takes from it.
func held(have int64, after time.Duration, u *ratelimit.Units) int64 {
	return min(have+after.Microseconds()*u.PerMicro(), u.Full())
}

// learn remembers what a bucket holds after a call, if that is less than the next
// one is likely to need.
func (d *denials) learn(hash uint64, left, need int64, sent, came time.Duration) {
	if left >= need {
		d.forget(hash)
		return
	}
	d.put(hash, left, sent, came)
}

// blocked is what a blocked bucket is said to hold, less the microseconds that are left.
const blocked = -1 << 52

func blockedFor(have int64) (left time.Duration, is bool) {
	return time.Duration(blocked-have) * time.Microsecond, have <= blocked
}

// decide makes a Decision of what a bucket held.
func decide(have, need int64, u *ratelimit.Units) ratelimit.Decision {
	if left, is := blockedFor(have); is {
		return u.Blocked(left, need)
	}
	return u.Decide(have, need)
}
