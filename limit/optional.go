package limit

import "context"

// These are interfaces of package adapter, which documents them and imports this one.

type checker interface {
	Limiter
	Check(take Take) error
}

type describer interface {
	Limiter
	Describe() []Description
}

type resetter interface {
	Limiter
	Reset(ctx context.Context, key Key) error
}

type rememberer interface {
	Limiter
	RemembersDenial(key Key, take Take) (Decision, bool)
}

type batcher interface {
	Limiter
	BatchesWith(other Limiter) bool
	TakeBatch(ctx context.Context, requests []Request, take Take) ([]Decision, error)
}

type inProcess interface {
	Limiter
	InProcess()
}

// check returns an error if a limiter cannot do a Take.
func check(l Limiter, take Take) error {
	if c, ok := l.(checker); ok {
		return c.Check(take)
	}
	return take.Validate()
}
