package enforce

import (
	"reflect"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// NewAll returns the limit of rules, which have a limiter each. It panics if a limiter or an option
// is invalid. Its requests have takes of several rules: see [Request.Add].
func NewAll(limiters []limit.Limiter, opts Options) *Limit {
	switch {
	case opts.MaxWait != 0:
		opts.panicf("NewAll does not support MaxWait; use New with limit.AllOf if the rules have the same key")
	case opts.Keeps:
		opts.panicf("NewAll does not support Keep; use New")
	case opts.Fallback != nil:
		opts.panicf("NewAll does not support Fallback; set FailOpen")
	case len(limiters) == 0:
		opts.panicf("NewAll needs a rule")
	}
	opts.mustBeValid(nil)
	for i, l := range limiters {
		opts.mustSuitRules(l, i, limiters[:i])
	}
	all := newLimit(opts, limiters...)
	all.limiter.takeAll, all.limiter.undoAll = limit.Take.All, limit.Receipt.UndoAll
	return all
}

// mustSuitRules panics if the limiter of rule i cannot decide together with those of earlier rules.
func (o *Options) mustSuitRules(l limit.Limiter, i int, earlier []limit.Limiter) {
	if l == nil {
		o.panicf("rule %d needs a limiter", i)
	}
	if err := adapter.Check(l, limit.Take{Mode: mode.Undoing}); err != nil {
		o.panicf("the limiter of rule %d is a %T, which cannot undo a take: %v", i, l, err)
	}
	if !reflect.TypeOf(l).Comparable() {
		o.panicf("the limiter of rule %d is a %T, which cannot be compared; pass a pointer", i, l)
	}
	for j, other := range earlier {
		if shareBuckets(l, other) {
			o.panicf("the limiters of rules %d and %d share buckets; pass one limiter for both, or give their policies different names", j, i)
		}
	}
}

// A sharer is a limiter in a store, where other limiters may have the same buckets.
type sharer interface {
	adapter.Batcher

	// BucketPrefix returns how the names of its buckets begin in the store.
	BucketPrefix() string
}

// shareBuckets reports whether different limiters in one store have buckets of the same names. They
// cannot charge one of them twice in one step.
func shareBuckets(a, b limit.Limiter) bool {
	one, ok := a.(sharer)
	other, both := b.(sharer)
	return ok && both && a != b && one.BatchesWith(b) && one.BucketPrefix() == other.BucketPrefix()
}
