package postgres

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] whose buckets are in PostgreSQL, so that many processes share
// them. Its decisions equal those of a limiter in memory, on the clock of the server. See [LimitStore]
// for what all limiters of this package have in common.
//
// A bucket that is known to hold too little denies without a round trip, for at most a second; the
// RetryAfter of such a denial does not include what other processes have taken meanwhile.
//
// Limiters whose policies have the same name share buckets, in one process and in many. A bucket
// contains the numbers of the policy that last changed it, and a limiter with other numbers
// converts it; the ends of its leases then return nothing. Therefore processes with different
// numbers, such as during a rolling deployment or after SetPolicy, grant a key in any interval at
// most the largest capacity plus what the largest refill returns in that interval. The numbers of a
// policy replace a missing name, so unnamed policies with different numbers have separate buckets.
//
// A bucket is a row of about 200 bytes, and 80 for each of its leases and for the marks of up to 16
// receipts, which every call for its key writes. The row is removed after the bucket is full and its last lease has ended. A Limiter is
// safe for concurrent use.
//
// A Limiter is also a [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer],
// [adapter.Describer] and [limit.PolicySetter]. SetPolicy affects this process only, and an unnamed
// policy cannot change, because its numbers name its buckets.
type Limiter struct {
	*bucketLimiter
}

type bucketLimiter = batch.Changeable[limit.Policy]

// NewLimiter returns a limiter. It panics if the policy is not valid.
func (l *LimitStore) NewLimiter(policy limit.Policy) *Limiter {
	return &Limiter{batch.NewBuckets("postgres", l.rowsOf(limitBucket, "limit", keyname.OfPolicy(policy)), policy)}
}
