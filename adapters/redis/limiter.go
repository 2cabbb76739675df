package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
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
// that expires when the bucket is full. Limiters whose policies have the same name share
// buckets, in one process and in many; the numbers of a policy replace a missing name.
type Limiter struct {
	client      goredis.UniversalClient
	units       limit.Units
	consumeOne  *script // for one call
	consumeMany *script // for many calls
	prefix      string
	policy      [2]any // arguments of the scripts
	oneNode     bool   // one script may have keys of several calls
	seed        maphash.Seed
	denials     batch.DenialCache
	calls       *batch.Batcher[bucketRequest, bucketResponse]
	batches     *scriptBatcher // of calls to several limiters
	blocks      *scriptBatcher
	now         func() time.Duration
	time        func() []any // in tests, the time for the scripts
}

var (
	_ limit.Blocker  = (*Limiter)(nil)
	_ limit.Reserver = (*Limiter)(nil)
)

// A bucketRequest takes units from a bucket, or returns them if they are negative.
type bucketRequest struct {
	key   string
	units int64
	ahead int64 // the largest deficit of the bucket after the call
}

// A bucketResponse is the state of a bucket before a request.
type bucketResponse struct {
	state          batch.State
	sent, received time.Duration // times of the round trip on the limiter's clock
}

type bucketCall = batch.Call[bucketRequest, bucketResponse]

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is nil. It
// does not connect to Redis.
func NewLimiter(client goredis.UniversalClient, policy limit.Policy) *Limiter {
	if client == nil {
		panic("redis: NewLimiter needs a client")
	}
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	l := &Limiter{
		client:      client,
		units:       policy.Units(),
		consumeOne:  newScript(limiterBucketLua + limiterConsumeOneLua),
		consumeMany: newScript(limiterBucketLua + limiterConsumeManyLua),
		oneNode:     oneNode,
		seed:        maphash.MakeSeed(),
		now:         func() time.Duration { return time.Since(epoch) },
	}
	l.prefix = keyName("penstock:limit", []string{policyName(policy)})
	l.policy = [2]any{strconv.FormatInt(l.units.PerMicro(), 10), strconv.FormatInt(l.units.Full(), 10)}
	l.batches = newScriptBatcher("redis: limiter", client, newScript(limiterBucketLua+limiterConsumeMultiLua), anyNumber)
	l.blocks = newScriptBatcher("redis: limiter", client, newScript(limiterBucketLua+limiterBlockLua), 0)
	l.calls = batch.New("redis: limiter", l.exec, honorsDeadline(client))
	return l
}

func policyName(p limit.Policy) string {
	if p.Name != "" {
		return p.Name
	}
	per := p.Per
	if per == 0 {
		per = time.Second
	}
	return fmt.Sprintf("%d-per-%s-burst-%d", p.Refill, per, p.Capacity)
}

// Consume takes cost tokens from key's bucket, or none of them.
func (l *Limiter) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	}
	costUnits := l.units.CostUnits(cost)
	hash := key.Hash(l.seed)
	if d, ok := l.denials.Decide(hash, l.now(), costUnits, &l.units); ok {
		return d, nil
	}
	r, err := l.call(ctx, &key, costUnits, 0)
	if err != nil {
		return limit.Decision{}, err
	}
	after := r.state
	if costUnits <= after.Units {
		after.Units -= costUnits
	}
	l.denials.Learn(hash, after, costUnits, r.sent, r.received)
	return r.state.Decision(costUnits, &l.units), nil
}

func (l *Limiter) call(ctx context.Context, key *limit.Key, units, ahead int64) (bucketResponse, error) {
	c := &bucketCall{
		Request: bucketRequest{key: keyName(l.prefix, keyParts(key)), units: units, ahead: ahead},
	}
	if err := l.calls.Do(ctx, c); err != nil {
		return bucketResponse{}, err
	}
	return c.Response, nil
}

// exec sends calls in one round trip: in one script if possible, otherwise in a pipeline.
func (l *Limiter) exec(ctx context.Context, calls []*bucketCall) {
	sent := l.now()
	l.run(ctx, calls)
	received := l.now()
	for _, c := range calls {
		c.Response.sent, c.Response.received = sent, received
	}
}

func (l *Limiter) run(ctx context.Context, calls []*bucketCall) {
	separate := len(calls) == 1 || !l.oneNode
	for _, c := range calls {
		separate = separate || c.Request.ahead > 0 // consumeMany has no reservations
	}
	if !separate {
		decode(l.consumeMany.run(ctx, l.client, [][]any{l.args(calls)})[0], calls)
		return
	}
	args := make([][]any, len(calls))
	for i, c := range calls {
		args[i] = l.args(calls[i:i+1], c.Request.ahead)
	}
	for i, reply := range l.consumeOne.run(ctx, l.client, args) {
		held, err := reply.Int64()
		calls[i].Response.state, calls[i].Err = bucketState(held), err
	}
}

// args returns a script's arguments for calls, the number of keys first.
func (l *Limiter) args(calls []*bucketCall, ahead ...int64) []any {
	args := make([]any, 0, 1+2*len(calls)+len(l.policy)+2)
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, c.Request.key)
	}
	args = append(args, l.policy[:]...)
	for _, c := range calls {
		args = append(args, l.scriptUnits(c.Request.units))
	}
	for _, units := range ahead {
		args = append(args, units)
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	return args
}

// scriptUnits bounds the units of a cost above the capacity, which Lua cannot count exactly.
func (l *Limiter) scriptUnits(units int64) int64 { return min(units, l.units.Full()+1) }

// decode sets the responses of many calls from the reply of one script.
func decode(reply *goredis.Cmd, calls []*bucketCall) {
	held, err := reply.Int64Slice()
	if err == nil && len(held) != len(calls) {
		err = fmt.Errorf("the script answered %d of %d calls", len(held), len(calls))
	}
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.Response.state = bucketState(held[i])
		}
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
