package redis

import (
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] whose buckets are in Redis, so that many processes share them.
// Its decisions equal those of a limiter in memory, on the clock of the Redis server.
//
// A decision takes one round trip; concurrent calls share round trips. A bucket that is known
// to hold too little is denied without a round trip, for at most a second; the RetryAfter of
// such a denial does not include what other processes have taken meanwhile. Errors are those of
// the client, of Redis and of ctx; after an error of ctx, it is unknown whether tokens were
// taken. No call is retried after it may have been executed.
//
// A bucket is a string under
//
//	penstock:limit:<policy>:<part>:<part>...
//
// that expires when the bucket is full and its last lease has ended. Each lease, and the mark of each
// of up to 16 receipts, adds about 80 bytes, which every call for its key writes. Limiters whose policies have the same name share buckets, in
// one process and in many. A bucket contains the numbers of the policy that last changed it, and a
// limiter with other numbers converts it; the ends of its leases then return nothing. Therefore
// processes with different numbers, such as during a rolling deployment or after SetPolicy, grant a
// key in any interval at most the largest capacity plus what the largest refill returns in that
// interval. The numbers of a policy replace a missing name, so unnamed policies with different
// numbers have separate buckets.
//
// Buckets survive as long as the data of Redis: a server that loses its data grants each key
// up to one capacity more, and a failover to a replica grants again what the replica had not
// yet received. In a planned failover the old master grants until it is demoted, which is at most
// one capacity more per key, and the refill while some nodes use the old master and others the
// new one.
//
// A Limiter is also a [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer],
// [adapter.Describer] and [limit.PolicySetter]. SetPolicy affects this process only, and an unnamed
// policy cannot change, because its numbers name its buckets. On a Cluster, limiters do not decide
// together, because their keys may be on different nodes.
type Limiter struct {
	*bucketLimiter
	buckets *buckets
}

type bucketLimiter = batch.Changeable[limit.Policy]

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It
// does not connect to Redis.
func NewLimiter(client goredis.UniversalClient, policy limit.Policy) *Limiter {
	b := newBuckets(client, keyname.OfPolicy(policy))
	return &Limiter{batch.NewBuckets("redis", b, policy), b}
}
