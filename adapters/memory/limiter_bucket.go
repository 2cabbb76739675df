package memory

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A bucket holds the time at which it will be full, in units since the limiter was created. A
// time in the past, such as 0, means that it is full. A negative value means that it is blocked
// until the time of that absolute value.
type bucket struct{ atomic.Int64 }

// migrated is the value of a bucket that was copied to another table.
const migrated = math.MinInt64

// blocked marks a blocked bucket: take returns blocked minus the units until the block ends.
const blocked = -1 << 62

// take takes units from the bucket if it holds them, or will hold them once ahead more units
// have returned. Negative units are a refund. take returns the units that the bucket held
// before, negative for a deficit, and false if the bucket has migrated.
//
// take loads the bucket both before and after it reads the clock. If the values are equal, the
// clock is not behind that of the last change. If they differ, another call has changed the
// bucket in between, maybe at a later time: an admission at the earlier time is still correct,
// because the bucket bounds it, but a denial might not be, so take starts again.
func (b *bucket) take(units, ahead int64, l *Limiter) (have int64, ok bool) {
again:
	for {
		before := b.Load()
		now := l.now()
		for {
			fullAt := b.Load()
			if fullAt == migrated {
				return 0, false
			}
			isLate := fullAt != before
			if left := -fullAt - now; fullAt < 0 && left > 0 && !isLate {
				return blocked - left, true
			}
			missing := max(fullAt-now, 0)
			have = l.units.Full() - missing
			clockWentBack := have < 0 && have < -l.maxAhead.Load()
			if clockWentBack {
				missing, have = l.units.Full(), 0
			}
			takes := units < 0 || units <= have+ahead
			if isLate && (fullAt <= 0 || units == 0 || !takes || clockWentBack) {
				continue again
			}
			next := now + missing
			if takes {
				next = max(next+units, now)
			} else if !clockWentBack {
				return have, true
			}
			// If the clock went backwards, even a denial writes: otherwise the bucket would stay
			// empty until the clock has caught up.
			if next == fullAt || units == 0 {
				return have, true
			}
			if b.CompareAndSwap(fullAt, next) {
				return have, true
			}
		}
	}
}

// set stores a value. It returns false if the bucket has migrated.
func (b *bucket) set(value int64) bool {
	for {
		old := b.Load()
		if old == migrated {
			return false
		}
		if b.CompareAndSwap(old, value) {
			return true
		}
	}
}

// evictable reports whether a bucket is full and not blocked, and thus equal to a new one.
func evictable(value, now int64) bool { return max(value, -value) <= now }

// blockedFor returns how long a block lasts for which take returned have.
func blockedFor(have int64, u *limit.Units) time.Duration {
	return time.Duration((blocked-have+u.PerMicro()-1)/u.PerMicro()) * time.Microsecond
}
