package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
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
type Limiter struct {
	client      goredis.UniversalClient
	consumeOne  *script // for one call
	consumeMany *script // for many calls
	name        string  // of the policy; may be empty
	prefix      string
	policy      atomic.Pointer[bucketPolicy]
	changes     sync.Mutex // held by SetPolicy
	oneNode     bool       // one script may have keys of several calls
	seed        maphash.Seed
	calls       *batch.Batcher[bucketRequest, batch.Reply]
	parts       *scriptBatcher // of calls with conditions of their own
	batches     *scriptBatcher // of calls to several limiters with buckets
	joints      *scriptBatcher // of calls to limiters of several kinds
	settlements *scriptBatcher // of leases
	blocks      *scriptBatcher
	now         func() time.Duration
	time        func() []any // in tests, the time for the scripts
}

// A bucketRequest takes units from a bucket, or returns them if they are negative.
type bucketRequest struct {
	policy *bucketPolicy
	key    string
	units  int64
}

type bucketCall = batch.Call[bucketRequest, batch.Reply]

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It
// does not connect to Redis.
func NewLimiter(client goredis.UniversalClient, policy limit.Policy) *Limiter {
	if client == nil {
		panic("redis: NewLimiter needs a client")
	}
	client, prefix, _ := unwrap(client)
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	l := &Limiter{
		client:      client,
		consumeOne:  newScript(bucketLua(limiterConsumeOneLua)),
		consumeMany: newScript(bucketLua(limiterConsumeManyLua)),
		name:        policy.Name,
		prefix:      keyname.Join(prefix+":limit", []string{keyname.OfPolicy(policy)}),
		oneNode:     oneNode,
		seed:        maphash.MakeSeed(),
		now:         func() time.Duration { return time.Since(epoch) },
	}
	l.policy.Store(newBucketPolicy(policy, nil))
	l.parts = newScriptBatcher("redis: limiter", client, newScript(bucketLua(leasesChangeLua+limiterConsumePartLua)), partNumbers)
	l.batches = newScriptBatcher("redis: limiter", client, newScript(bucketLua(limiterConsumeMultiLua)), anyNumber)
	l.joints = newScriptBatcher("redis: limiter", client, jointScript(), anyNumber)
	l.settlements = newScriptBatcher("redis: limiter", client, newScript(bucketLua(leasesChangeLua+limiterSettleLua)), 0)
	l.blocks = newScriptBatcher("redis: limiter", client, newScript(bucketLua(limiterBlockLua)), 0)
	l.calls = batch.New("redis: limiter", batch.LimiterTimeout, l.exec, redisclient.HonorsDeadline(client))
	return l
}

// Take takes tokens from key's bucket.
func (l *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	p := l.policy.Load()
	if err := take.Validate(); err != nil {
		return limit.Decision{}, fmt.Errorf("redis: %w", err)
	}
	return p.Take(key.Hash(l.seed), &take, l.now, func(what batch.Take) (batch.Reply, error) {
		switch {
		case take.IsPlain() || take.Mode == limit.Returning:
			return l.call(ctx, p, &key, what.Units)
		case what.Lease.ID != 0 && take.Mode == limit.Settling:
			return batch.Reply{}, l.settle(ctx, p, &key, what)
		default:
			return l.callPart(ctx, p, &key, what)
		}
	})
}

// RemembersDenial returns the denial of a Take if this process knows it without asking Redis.
func (l *Limiter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return l.policy.Load().Remembered(key.Hash(l.seed), &take, l.now())
}

// call takes units, all or none, or returns them if they are negative.
func (l *Limiter) call(ctx context.Context, p *bucketPolicy, key *limit.Key, units int64) (batch.Reply, error) {
	c := &bucketCall{
		Request: bucketRequest{policy: p, key: keyname.Join(l.prefix, keyname.Parts(key)), units: units},
	}
	if err := l.calls.Do(ctx, c); err != nil {
		return batch.Reply{}, err
	}
	return c.Response, nil
}

// callPart takes what the conditions of a Take permit.
func (l *Limiter) callPart(ctx context.Context, p *bucketPolicy, key *limit.Key, what batch.Take) (batch.Reply, error) {
	args := append([]any{1, keyname.Join(l.prefix, keyname.Parts(key))}, p.args[:]...)
	args = append(args, partArgs(what)...)
	if l.time != nil {
		args = append(args, l.time()...)
	}
	sent, c := l.now(), &scriptCall{Request: args}
	if err := l.parts.Do(ctx, c); err != nil {
		return batch.Reply{}, err
	}
	return batch.Reply{State: partState(c.Response), Sent: sent, Received: l.now()}, nil
}

// partArgs returns the arguments of a script for one call with conditions, after those of its policy.
func partArgs(what batch.Take) []any {
	args := []any{what.Units, what.Lowest, what.Divisor, what.Since}
	return append(args, leaseArgs(what.Lease)...)
}

// partNumbers is how many numbers such a script returns.
const partNumbers = 4

// partState returns the state of a bucket that these numbers describe.
func partState(reply []int64) batch.State {
	state := bucketState(reply[0])
	state.At = reply[1]
	state.LeaseEnds = time.Duration(reply[2]) * time.Microsecond
	state.LeasesFull = reply[3] == 1
	return state
}

// exec sends calls in one round trip: in one script if possible, otherwise in a pipeline.
func (l *Limiter) exec(ctx context.Context, calls []*bucketCall) {
	sent := l.now()
	l.run(ctx, calls)
	received := l.now()
	for _, c := range calls {
		c.Response.Sent, c.Response.Received = sent, received
	}
}

func (l *Limiter) run(ctx context.Context, calls []*bucketCall) {
	if len(calls) > 1 && l.oneNode && haveOnePolicy(calls) {
		decode(l.consumeMany.Run(ctx, l.client, [][]any{l.args(calls)})[0], calls)
		return
	}
	args := make([][]any, len(calls))
	for i := range calls {
		args[i] = l.args(calls[i : i+1])
	}
	for i, reply := range l.consumeOne.Run(ctx, l.client, args) {
		if held, ok := reply.Val().(int64); ok {
			calls[i].Response.State = bucketState(held)
		} else {
			decode(reply, calls[i:i+1])
		}
	}
}

// haveOnePolicy returns false if SetPolicy was called between two of the calls.
func haveOnePolicy(calls []*bucketCall) bool {
	for _, c := range calls[1:] {
		if c.Request.policy != calls[0].Request.policy {
			return false
		}
	}
	return true
}

// args returns a script's arguments for calls of one policy, the number of keys first.
func (l *Limiter) args(calls []*bucketCall) []any {
	p := calls[0].Request.policy
	args := make([]any, 0, 1+2*len(calls)+len(p.args)+1)
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, c.Request.key)
	}
	args = append(args, p.args[:]...)
	for _, c := range calls {
		args = append(args, p.scriptUnits(c.Request.units))
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	return args
}

// decode sets the responses of calls from the reply of one script: what each bucket held, then the
// indices of calls, from 1, whose buckets have leases, each with the microseconds until the first one ends.
func decode(reply *goredis.Cmd, calls []*bucketCall) {
	numbers, err := reply.Int64Slice()
	if err == nil && (len(numbers) < len(calls) || (len(numbers)-len(calls))%2 != 0) {
		err = fmt.Errorf("the script returned %d numbers for %d calls", len(numbers), len(calls))
	}
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.Response.State = bucketState(numbers[i])
		}
	}
	if err != nil {
		return
	}
	for leases := numbers[len(calls):]; len(leases) > 0; leases = leases[2:] {
		calls[leases[0]-1].Response.State.LeaseEnds = time.Duration(leases[1]) * time.Microsecond
	}
}

// blockedReply marks a blocked bucket: scripts return it minus the microseconds until the block
// ends.
const blockedReply = -1 << 52

// bucketState returns the state of a bucket that scripts describe by a number.
func bucketState(held int64) batch.State {
	if held < blockedReply {
		return batch.State{BlockedFor: time.Duration(blockedReply-held) * time.Microsecond}
	}
	return batch.State{Units: held}
}
