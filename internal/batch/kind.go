package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A policy is one of any kind: of token buckets, or of records.
type policy struct {
	description limit.Description
	source      limit.Policy // of a bucket
	bucket      *Policy      // nil unless it is that of token buckets
	record      *RecordPolicy
	numbers     func(key *limit.Key, now time.Time) []int64 // of a record's requests
	cooldown    limit.CooldownPolicy                        // zero unless it is that of a cooldown
}

// following returns the policy as one that replaces another of a limiter.
func (p *policy) following(old *policy) *policy {
	next := *p
	if p.bucket != nil {
		next.bucket = NewPolicy(p.source, old.bucket)
	} else {
		next.record = p.record.Following(old.record)
	}
	return &next
}

// withoutMemory returns the policy without remembered denials.
func (p *policy) withoutMemory() *policy {
	next := *p
	if p.bucket != nil {
		next.bucket = p.bucket.WithoutMemory()
	} else {
		next.record = p.record.WithoutMemory()
	}
	return &next
}

func (p *policy) bucketRequest(key limit.Key, take *limit.Take, what Take) *Request {
	return &Request{Key: key, Mode: take.Mode, IsPlain: take.IsPlain(), Policy: p.bucket, Bucket: what}
}

func (p *policy) recordRequest(key limit.Key, take *limit.Take, what RecordTake, store Store) *Request {
	r := &Request{Key: key, Mode: take.Mode, IsPlain: take.IsPlain(), Record: what}
	r.Numbers = p.numbers(&r.Key, store.Time())
	return r
}

// NewBuckets returns a limiter with token buckets. Like the other constructors, it panics if the
// policy is not valid. The name is that of the adapter's package, with which errors begin.
func NewBuckets(name string, store Store, p limit.Policy) *Changeable[limit.Policy] {
	return newChangeable(name, store, limit.Take.Validate, bucketPolicy, p)
}

func bucketPolicy(p limit.Policy) (*policy, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &policy{description: adapter.UnitsOf(p).Description(p.Name), source: p, bucket: NewPolicy(p, nil)}, nil
}

// NewLog returns a sliding-window log.
func NewLog(name string, store Store, p limit.WindowPolicy) *Changeable[limit.WindowPolicy] {
	return newChangeable(name, store, limit.Take.ValidateWindow, logPolicy, p)
}

func logPolicy(p limit.WindowPolicy) (*policy, error) {
	return recordPolicy(p.Description(), p.Max, p.Window.Microseconds(), 0), p.ValidateLog()
}

// NewCounter returns a sliding-window counter.
func NewCounter(name string, store Store, p limit.WindowPolicy) *Changeable[limit.WindowPolicy] {
	return newChangeable(name, store, limit.Take.ValidateWindow, counterPolicy, p)
}

func counterPolicy(p limit.WindowPolicy) (*policy, error) {
	return recordPolicy(p.Description(), p.Max, p.Window.Milliseconds()), p.Validate()
}

// recordPolicy returns a policy with the same numbers for all keys.
func recordPolicy(d limit.Description, numbers ...int64) *policy {
	return &policy{
		description: d, record: NewRecordPolicy(d),
		numbers: func(*limit.Key, time.Time) []int64 { return numbers },
	}
}

// NewQuota returns a quota.
func NewQuota(name string, store Store, p limit.QuotaPolicy) *Changeable[limit.QuotaPolicy] {
	return newChangeable(name, store, limit.Take.ValidateQuota, quotaPolicy, p)
}

func quotaPolicy(p limit.QuotaPolicy) (*policy, error) {
	calendar := NewCalendar(p)
	return &policy{
		description: p.Description(), record: NewQuotaPolicy(p),
		numbers: func(key *limit.Key, now time.Time) []int64 {
			b := &calendar.Periods(key, now).Bounds
			return []int64{p.Max, b[0], b[1], b[2], b[3], b[4]}
		},
	}, p.Validate()
}

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil, once for every penalty that a
// call of this process starts.
func NewCooldown(name string, store Store, p limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if err := p.Validate(); err != nil {
		panic(err.Error())
	}
	first := recordPolicy(p.Description(), p.Max, p.Window.Microseconds(), p.Penalty.Microseconds())
	first.cooldown = p
	l := newLimiter(name, store, limit.Take.ValidateCooldown, first)
	l.onPenalty = onPenalty
	return &Cooldown{l}
}
