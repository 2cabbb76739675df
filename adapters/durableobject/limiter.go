package durableobject

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] whose buckets are in Durable Objects, so that processes
// everywhere share them. Its decisions equal those of a limiter in memory, on the clock of the
// object.
//
// A decision takes one request to the Worker; concurrent calls share requests. A bucket that is
// known to hold too little is denied without a request, for at most a second; the RetryAfter of
// such a denial does not include what other processes have taken meanwhile. A request takes at
// most a second and is never repeated. After an error, it is unknown whether tokens were taken.
// Only a complete reply of the Worker is a decision: errors of Cloudflare, such as status 429, are
// errors.
//
// The clock of an object has whole milliseconds. RetryAfter and ResetAfter are rounded up to
// them: waiting exactly RetryAfter is always enough. A key is granted up to a millisecond's refill
// early.
//
// Limiters whose policies have the same name share buckets, in one process and in many. A bucket
// contains the numbers of the policy that last changed it, and a limiter with other numbers
// converts it. Therefore processes with different numbers, such as during a rolling deployment or
// after SetPolicy, grant a key in any interval at most the largest capacity plus what the largest
// refill returns in that interval. The numbers of a policy replace a missing name, so unnamed
// policies with different numbers have separate buckets.
//
// The buckets survive restarts, evictions and moves of their objects. An object whose storage is
// deleted grants each key up to one capacity more.
//
// [limit.AllOf] of limiters with one client, of any kinds, takes one request.
//
// A Limiter is also a [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer],
// [adapter.Describer] and [limit.PolicySetter]. SetPolicy affects this process only, and an unnamed
// policy cannot change, because its numbers name its buckets.
type Limiter struct {
	*bucketLimiter
	records *records
}

type bucketLimiter = batch.Changeable[limit.Policy]

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It does
// not connect to the Worker.
func NewLimiter(client *Client, policy limit.Policy) *Limiter {
	store := newRecords(client, "bucket", keyname.OfPolicy(policy))
	return &Limiter{batch.NewBuckets("durableobject", store, policy), store}
}
