package durableobject

import "github.com/penstock-go/penstock/internal/batch"

// A CountLimiter is a limiter that counts what keys have taken, by a policy of type P: a sliding window
// ([NewSlidingLog], [NewSlidingCounter]) or a quota ([NewQuota]). It is a [limit.Limiter],
// [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer], [adapter.Describer] and
// [limit.PolicySetter]. SetPolicy affects this process only, and an unnamed policy cannot change,
// because its numbers name its records. A CountLimiter is safe for concurrent use.
type CountLimiter[P any] struct {
	*countLimiter[P]
	records *records
}

type countLimiter[P any] = batch.Changeable[P]
