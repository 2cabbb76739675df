package enforce

import (
	"fmt"
	"reflect"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// NewAll returns the limit of rules, which have a limiter each, or an error if a limiter or an
// option is invalid. Its requests have takes of several rules: see [Request.Add].
func NewAll(limiters []limit.Limiter, opts Options) (*Limit, error) {
	switch {
	case opts.MaxWait != 0:
		return nil, errors.New("NewAll does not support MaxWait; use New with limit.AllOf if the rules have the same key")
	case opts.Keeps:
		return nil, errors.New("NewAll does not support Keep; use New")
	case opts.Fallback != nil:
		return nil, errors.New("NewAll does not support Fallback; set FailurePolicy")
	}
	if err := opts.validate(nil); err != nil {
		return nil, err
	}
	if err := validateRules(limiters); err != nil {
		return nil, err
	}
	return newLimit(opts, limiters...), nil
}

func validateRules(limiters []limit.Limiter) error {
	if len(limiters) == 0 {
		return errors.New("NewAll needs a rule")
	}
	for i, l := range limiters {
		if l == nil {
			return fmt.Errorf("rule %d needs a limiter", i)
		}
		if err := limit.Check(l, limit.Take{Mode: limit.Undoing}); err != nil {
			return fmt.Errorf("the limiter of rule %d is a %T, which cannot undo a take: %w", i, l, err)
		}
		if !reflect.TypeOf(l).Comparable() {
			return fmt.Errorf("the limiter of rule %d is a %T, which cannot be compared; pass a pointer", i, l)
		}
		for j, other := range limiters[:i] {
			if shareBuckets(l, other) {
				return fmt.Errorf("the limiters of rules %d and %d share buckets; pass one limiter for both, or give their policies different names", j, i)
			}
		}
	}
	return nil
}

// shareBuckets reports whether different limiters in one store have buckets of the same names. They
// cannot charge one of them twice in one step. Limiters in this process have buckets of their own.
func shareBuckets(a, b limit.Limiter) bool {
	_, inProcess := a.(limit.InProcess)
	batcher, ok := a.(limit.Batcher)
	if a == b || inProcess || !ok || !batcher.BatchesWith(b) || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	one, ok := a.(limit.Describer)
	two, both := b.(limit.Describer)
	if !ok || !both {
		return false
	}
	x, y := one.Describe()[0], two.Describe()[0]
	return x == y || x.Name != "" && x.Name == y.Name
}
