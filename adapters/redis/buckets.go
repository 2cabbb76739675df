package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// buckets are the token buckets of a limiter.
type buckets struct {
	keyspace
	consumeOne  *redisclient.Script // for one call
	consumeMany *redisclient.Script // for many calls
	lastArgs    atomic.Pointer[policyArgs]
	calls       *batch.Batcher[bucketRequest, batch.Reply]
	parts       *redisclient.Batcher // of calls with conditions of their own
	settlements *redisclient.Batcher // of leases
}

// A bucketRequest takes units from a bucket, or returns them if they are negative.
type bucketRequest struct {
	policy *batch.Policy
	key    string
	units  int64
}

type bucketCall = batch.Call[bucketRequest, batch.Reply]

func newBuckets(client goredis.UniversalClient, policyName string) *buckets {
	b := &buckets{
		keyspace:    newKeyspace(client, "limit", policyName, "limiter", bucketLua(limiterBlockLua)),
		consumeOne:  redisclient.NewScript(lazyBucketLua(limiterConsumeOneLua)),
		consumeMany: redisclient.NewScript(lazyBucketLua(limiterConsumeManyLua)),
	}
	b.parts = redisclient.NewBatcher(b.name, b.client, redisclient.NewScript(bucketLua(leasesChangeLua+limiterConsumePartLua)), partNumbers)
	b.settlements = redisclient.NewBatcher(b.name, b.client, redisclient.NewScript(bucketLua(leasesChangeLua+limiterSettleLua)), 0)
	b.calls = batch.New(b.name, batch.LimiterTimeout, b.exec, redisclient.HonorsDeadline(b.client))
	return b
}

// policyArgs are the first arguments of the scripts: the units per microsecond, the units of a full
// bucket, and the suffix of the policy.
type policyArgs struct {
	policy *batch.Policy
	args   [3]any
}

// argsOf returns the arguments about a policy, and keeps those of the last one.
func (b *buckets) argsOf(p *batch.Policy) *[3]any {
	kept := b.lastArgs.Load()
	if kept == nil || kept.policy != p {
		suffix := fmt.Sprintf("/%d.%d.%d", p.PerMicro(), p.PerToken(), p.Full()/p.PerToken())
		kept = &policyArgs{p, [3]any{strconv.FormatInt(p.PerMicro(), 10), strconv.FormatInt(p.Full(), 10), suffix}}
		b.lastArgs.Store(kept)
	}
	return &kept.args
}

// scriptUnits bounds the units of a cost above the capacity, which Lua cannot count exactly.
func scriptUnits(p *batch.Policy, units int64) int64 { return min(units, p.Full()+1) }

// Do executes a request.
func (b *buckets) Do(ctx context.Context, r *batch.Request) (batch.Reply, error) {
	switch {
	case r.IsPlain || r.Mode == mode.Returning:
		return b.call(ctx, r.Policy, &r.Key, r.Bucket.Units)
	case r.Bucket.Lease.ID != 0 && r.Mode == mode.Settling:
		return batch.Reply{}, b.settle(ctx, r)
	default:
		return b.callPart(ctx, r)
	}
}

// jointArgs returns the kind and the arguments of a part of a joint call.
func (b *buckets) jointArgs(r *batch.Request) (kind string, args []any) {
	return "bucket", append(b.argsOf(r.Policy)[:], partArgs(r.Bucket)...)
}

// jointReply returns what the numbers of a joint call say, and the numbers behind them.
func (b *buckets) jointReply(numbers []int64) (batch.Reply, []int64) {
	return batch.Reply{State: partState(numbers)}, numbers[partNumbers:]
}

// call takes units, all or none, or returns them if they are negative.
func (b *buckets) call(ctx context.Context, p *batch.Policy, key *limit.Key, units int64) (batch.Reply, error) {
	c := &bucketCall{
		Request: bucketRequest{policy: p, key: b.Name(key), units: units},
	}
	if err := b.calls.Do(ctx, c); err != nil {
		return batch.Reply{}, err
	}
	return c.Response, nil
}

// callPart takes what the conditions of a Take permit.
func (b *buckets) callPart(ctx context.Context, r *batch.Request) (batch.Reply, error) {
	args := append([]any{1, b.Name(&r.Key)}, b.argsOf(r.Policy)[:]...)
	args = append(args, partArgs(r.Bucket)...)
	sent, c := b.now(), &redisclient.Call{Request: args}
	if err := b.parts.Do(ctx, c); err != nil {
		return batch.Reply{}, err
	}
	return batch.Reply{State: partState(c.Response), Sent: sent, Received: b.now()}, nil
}

// settle settles a lease of a bucket.
func (b *buckets) settle(ctx context.Context, r *batch.Request) error {
	args := append([]any{1, b.Name(&r.Key)}, b.argsOf(r.Policy)[:]...)
	lease := &r.Bucket.Lease
	args = append(args, r.Bucket.Units, lease.ID, lease.Excess, lease.Returns, adapter.MaxLeases)
	return b.settlements.Do(ctx, &redisclient.Call{Request: args})
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
func (b *buckets) exec(ctx context.Context, calls []*bucketCall) {
	sent := b.now()
	b.run(ctx, calls)
	received := b.now()
	for _, c := range calls {
		c.Response.Sent, c.Response.Received = sent, received
	}
}

func (b *buckets) run(ctx context.Context, calls []*bucketCall) {
	if len(calls) > 1 && b.oneNode && haveOnePolicy(calls) {
		decode(b.consumeMany.Run(ctx, b.client, [][]any{b.args(calls)})[0], calls)
		return
	}
	args := make([][]any, len(calls))
	for i := range calls {
		args[i] = b.args(calls[i : i+1])
	}
	for i, reply := range b.consumeOne.Run(ctx, b.client, args) {
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
func (b *buckets) args(calls []*bucketCall) []any {
	p := calls[0].Request.policy
	policyArgs := b.argsOf(p)
	args := make([]any, 0, 1+2*len(calls)+len(policyArgs))
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, c.Request.key)
	}
	args = append(args, policyArgs[:]...)
	for _, c := range calls {
		args = append(args, scriptUnits(p, c.Request.units))
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
