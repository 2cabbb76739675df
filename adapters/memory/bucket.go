package memory

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A bucket is when it will be full again, in units since the epoch. At 0 it is
// full now and ever. Negative, it is blocked until then.
type bucket struct{ atomic.Int64 }

// moved is the value of a bucket that has gone to another table.
const moved = math.MinInt64

// blocked is what a blocked bucket is said to have, less the units that must flow until
// it is not.
const blocked = -1 << 62

// take takes need units if the bucket has them, or will have when ahead more have flowed
// in; or gives them back if need is negative. It returns what the bucket had, and false if
// the bucket has moved.
//
// It looks at the clock when it has seen the bucket, which is so never of a later time: whoever
// is kept waiting in between takes by the time of others, or begins anew.
func (b *bucket) take(need, ahead int64, l *Limiter) (have int64, ok bool) {
	for {
		fullAt := b.Load()
		now := l.now()
		if fullAt < 0 {
			if fullAt == moved {
				return 0, false
			}
			if left := -fullAt - now; left > 0 {
				return blocked - left, true
			}
		}
		debt := max(fullAt-now, 0)
		have = l.units.Full() - debt
		steppedBack := have < 0 && have < -l.ahead.Load()
		if steppedBack {
			debt, have = l.units.Full(), 0
		}
		next := now + debt
		if need < 0 || need <= have+ahead {
			next = max(next+need, now)
		} else if !steppedBack {
			return have, true
		}
		// Where the clock has stepped back, a denial writes too: otherwise the bucket would
		// stay empty until the clock has caught up.
		if next == fullAt || need == 0 {
			return have, true
		}
		if b.CompareAndSwap(fullAt, next) {
			return have, true
		}
	}
}

// set returns false if the bucket has moved.
func (b *bucket) set(value int64) bool {
	for {
		old := b.Load()
		if old == moved {
			return false
		}
		if b.CompareAndSwap(old, value) {
			return true
		}
	}
}

// worthless reports whether a bucket is like one that was never there.
func worthless(value, now int64) bool { return max(value, -value) <= now }

// blockedFor returns how long a bucket is blocked that was said to have so many units.
func blockedFor(have int64, u *ratelimit.Units) time.Duration {
	return time.Duration((blocked-have+u.PerMicro()-1)/u.PerMicro()) * time.Microsecond
}
