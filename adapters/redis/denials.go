package redis

import (
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// denials remembers buckets that are nearly empty, so that a client that floods costs
// Redis nothing. What a bucket held at one time bounds what it can hold later: who
// needs more than that can be refused here, and the refusal is exact.
type denials struct{ recent[denial] }

// A denial is what a bucket held at some time after a call was sent and before its
// answer came.
type denial struct {
	have int64
	sent time.Duration
}

// decide refuses what the bucket cannot pay for yet, or returns false: only Redis
// knows.
func (d *denials) decide(hash uint64, now time.Duration, need int64, u *ratelimit.Units) (ratelimit.Decision, bool) {
	known, ok := d.get(hash, now)
	if !ok || need <= held(known.value.have, now-known.value.sent, u) {
		return ratelimit.Decision{}, false
	}
	// For the wait, the other bound: it must be enough.
	return u.Decide(held(known.value.have, now-known.came, u), need), true
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
	d.put(hash, denial{left, sent}, came)
}
