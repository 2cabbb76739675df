package memory

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit/adapter"
)

// A bucket holds the time at which it will be full, in units since the limiter was created. A
// time in the past means that it is full, and so does a value from -fullMarkers to 0. A lesser
// value means that it is blocked until the time -value-fullMarkers.
type bucket struct{ atomic.Int64 }

const (
	migrated = math.MinInt64     // the bucket was evicted or copied to another table
	held     = math.MinInt64 + 1 // TakeBatch decides about the bucket

	fullMarkers = 1 << 40
)

// blocked marks a blocked bucket: take returns blocked minus the units until the block ends.
const blocked = -1 << 62

// A slot's hash may change, but only while mu of its shard is held and its bucket is migrated.
//
// A call finds a slot by its hash, loads the bucket, checks the hash again and then changes the
// bucket by comparing it with the loaded value. If the slot has got another key in between,
// the comparison fails, because no value of the old key is one of the new key: a slot gets
// another key only after all values of the old one are in the past (see table.lowered), values of
// the new key are in the future, and values that mean full are used once.
type slot struct {
	hash   atomic.Uint64 // 0 if the slot is free
	bucket bucket
}

// A request is what a call wants from a bucket, in tokens.
type request struct {
	kind    requestKind
	tokens  int64
	keep    int64 // of consume and look: what must be left
	maxWait int64 // of consume and look: microseconds until the bucket holds the tokens
	gives   int64 // of give
	at      int64 // set by take: when it was executed, in units

	// The leases of a key whose calls are tracked are locked. Otherwise, none had been added to the
	// shard beyond seen when the key had none; take must not change the bucket if one has been since.
	tracked  bool
	seen     int64
	overflow bool // set by take: the bucket is an overflow bucket
}

type requestKind uint8

const (
	consume requestKind = iota // all tokens or none
	look                       // as consume, but takes nothing
	refund
	give   // returns units
	upTo   // at most the tokens
	charge // all tokens, even if the bucket does not hold them, up to the largest deficit
)

// needsBucket reports whether the request can take tokens, so that a new key needs a bucket.
func (r *request) needsBucket(u *adapter.Units) bool {
	return (r.kind == consume || r.kind >= upTo) && r.tokens > 0 && (r.kind >= upTo || u.CostUnits(r.tokens) <= u.Full())
}

// units returns the request in units: what to take, and how many units the bucket may lack
// for it. Refunded units are negative.
func (r *request) units(u *adapter.Units) (units, ahead int64) {
	switch r.kind {
	case look:
		return 0, 0
	case refund:
		return -u.RefundUnits(r.tokens), 0
	case give:
		return -r.gives, 0
	case upTo:
		return math.MaxInt64, 0
	case charge:
		return u.DebtUnits(r.tokens), 0
	default:
		ahead = r.maxWait * u.PerMicro()
		if r.keep > 0 {
			ahead = -min(u.CostUnits(r.keep), 1<<60) // more than a bucket holds
		}
		return u.CostUnits(r.tokens), ahead
	}
}

// before returns the units that a bucket was missing before a request that take has returned have for, or
// untracked if other keys change it, too.
func (r *request) before(have int64, t *table) int64 {
	switch {
	case r.overflow:
		return untracked
	case have <= blocked:
		return 0
	default:
		return t.units.Full() - have
	}
}

// isOutdated reports whether the key may have a lease of which the request does not know.
func (r *request) isOutdated(hash uint64, l *Limiter) bool {
	return !r.tracked && r.seen != l.shards[hash>>l.shift].leases.added.Load()
}

// part returns how many units a request takes that is not all or none, and whether it takes any.
func (r *request) part(units, have int64, u *adapter.Units) (amount int64, takes bool) {
	if r.kind == upTo {
		amount = min(r.tokens, u.WholeTokens(have)) * u.PerToken()
	} else {
		amount = max(min(units, adapter.MaxDeficit-(u.Full()-have)), 0)
	}
	return amount, amount > 0
}

// take takes units from the bucket if the request permits it. It returns the units that the
// bucket held before, negative for a deficit, and false if the slot has no bucket of the key, or if
// the request is outdated.
func (s *slot) take(hash uint64, units, ahead int64, r *request, t *table, l *Limiter) (have int64, ok bool) {
	if ahead > 0 {
		t.raiseAhead(ahead) // the bucket may have such a deficit afterwards
	}
	for {
		before := s.bucket.Load()
		now := l.now(t)
		r.at = now
		for {
			fullAt := s.bucket.Load()
			if s.hash.Load() != hash || fullAt == migrated {
				return 0, false
			}
			if fullAt == held {
				runtime.Gosched()
				break
			}
			if left := blockLeft(fullAt, now); left > 0 && fullAt == before {
				return blocked - left, true
			}
			c := t.changeBy(r, now, units, ahead, fullAt)
			if fullAt != before && c.needsLaterClock(fullAt) {
				break
			}
			if !c.writes(fullAt) {
				return c.have, true
			}
			if r.isOutdated(hash, l) { // asked after the bucket was loaded, so that no lease is missed
				return 0, false
			}
			if c.next < fullAt {
				t.lower(fullAt)
			}
			if r.kind == charge {
				t.raiseAhead(c.next - now - t.units.Full())
			}
			if s.bucket.CompareAndSwap(fullAt, c.next) {
				return c.have, true
			}
		}
	}
}

// A change is what a request does to a bucket.
type change struct {
	have  int64 // units before it
	next  int64 // the value of the bucket after it
	takes bool  // or returns

	// The clock went backwards since the last change. Then even a denial writes: otherwise the bucket
	// would stay empty until the clock has caught up.
	repairs bool
}

// changeBy returns what a request does at a time to the bucket that will be full at fullAt.
func (t *table) changeBy(r *request, now, units, ahead, fullAt int64) change {
	full, missing, clockWentBack := t.units.Full(), max(fullAt-now, 0), false
	if missing > full {
		missing, clockWentBack = t.missing(fullAt, now)
	}
	have, next := full-missing, now+missing
	amount, takes := units, units < 0 || units <= have+ahead
	if r.kind > give {
		amount, takes = r.part(units, have, &t.units)
	}
	if takes {
		next = max(next+amount, now)
	}
	return change{have, next, takes && amount != 0, clockWentBack && amount != 0}
}

// needsLaterClock reports whether the clock must be read again for a change to a bucket that another call
// has changed since it was read, maybe at a later time. If the values before and after reading the clock
// are equal, the clock is not behind that of the last change. Otherwise, an admission at the earlier
// time is still correct, because the bucket bounds it, but a denial might not be.
func (c change) needsLaterClock(fullAt int64) bool { return fullAt <= 0 || !c.takes || c.repairs }

// writes reports whether the change gives the bucket another value.
func (c change) writes(fullAt int64) bool { return c.next != fullAt && (c.takes || c.repairs) }

// replaceLocked stores a value that does not follow from the present one. It needs mu of the
// shard, so that the bucket is neither held nor migrated.
func (s *slot) replaceLocked(value int64, t *table) {
	for {
		old := s.bucket.Load()
		t.lower(old)
		if s.bucket.CompareAndSwap(old, value) {
			return
		}
	}
}

// blockLeft returns the units until a block ends, and at most 0 if the bucket is not blocked.
func blockLeft(fullAt, now int64) int64 {
	if fullAt >= -fullMarkers {
		return 0
	}
	return -fullAt - fullMarkers - now
}

// blockedUntil returns the value of a bucket that is blocked until a time in units.
func blockedUntil(until int64) int64 { return -until - fullMarkers }

// blockedFor returns how long a block lasts for which take returned have.
func blockedFor(have int64, u *adapter.Units) time.Duration {
	return time.Duration((blocked-have+u.PerMicro()-1)/u.PerMicro()) * time.Microsecond
}
