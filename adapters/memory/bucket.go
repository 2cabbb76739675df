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
// It looks at the bucket before and after it looks at the clock. If that is the same, the time
// is not before that of whoever has changed the bucket last. If not, whoever stood still in
// between may take by a time that has passed, which the bucket bounds, but must not be refused by it.
func (b *bucket) take(need, ahead int64, l *Limiter) (have int64, ok bool) {
again:
	for {
		before := b.Load()
		now := l.now()
		for {
			fullAt := b.Load()
			if fullAt == moved {
				return 0, false
			}
			isLate := fullAt != before
			if left := -fullAt - now; fullAt < 0 && left > 0 && !isLate {
				return blocked - left, true
			}
			debt := max(fullAt-now, 0)
			have = l.units.Full() - debt
			steppedBack := have < 0 && have < -l.ahead.Load()
			if steppedBack {
				debt, have = l.units.Full(), 0
			}
			takes := need < 0 || need <= have+ahead
			if isLate && (fullAt <= 0 || need == 0 || !takes || steppedBack) {
				continue again
			}
			next := now + debt
			if takes {
				next = max(next+need, now)
			} else if !steppedBack {
				return have, true
			}
			// Where the clock has stepped back, a denial writes too: otherwise the bucket
			// would stay empty until the clock has caught up.
			if next == fullAt || need == 0 {
				return have, true
			}
			if b.CompareAndSwap(fullAt, next) {
				return have, true
			}
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
