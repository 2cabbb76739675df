package redis

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/redisclient"
)

//go:embed joint.lua
var jointLua string

// jointForms is shared by all limiters, because the script is long.
//
//nolint:gochecknoglobals // never changed
var jointForms = sync.OnceValue(func() *redisclient.Forms { return redisclient.NewScript(jointSource()).Forms })

// jointSource returns the source of the script. All parts of a call have the time of its beginning.
func jointSource() string {
	var text strings.Builder
	text.WriteString(`local server, time = redis, redis.call('TIME')
local redis = setmetatable({ call = function(name, ...)
  if name == 'TIME' then
    return time
  end
  return server.call(name, ...)
end }, { __index = server })
local kinds = {}
`)
	for _, kind := range []struct{ name, lua string }{
		{"bucket", bucketLua(leasesChangeLua + limiterConsumePartLua)},
		{kindCounter, recordLua(kindCounter)},
		{kindLog, recordLua(kindLog)},
		{kindQuota, recordLua(kindQuota)},
	} {
		fmt.Fprintf(&text, "kinds.%s = function(KEYS, ARGV)\n%send\n", kind.name, kind.lua)
	}
	return text.String() + jointLua
}

// jointScripts decide about several limiters in one step.
type jointScripts struct {
	buckets *redisclient.Batcher // about buckets without leases and marks: its script is shorter
	all     *redisclient.Batcher // about limiters of all kinds
}

func newJointScripts(client goredis.UniversalClient) *jointScripts {
	return &jointScripts{
		buckets: redisclient.NewBatcher("redis: limiter", client, redisclient.NewScript(bucketLua(limiterConsumeMultiLua)), redisclient.AnyNumber),
		all:     redisclient.NewBatcher("redis: limiter", client, &redisclient.Script{Forms: jointForms()}, redisclient.AnyNumber),
	}
}

// A jointStore is a store of this package.
type jointStore interface {
	batch.Store
	at() *keyspace
	jointArgs(r *batch.Request) (kind string, args []any)
	jointReply(numbers []int64) (reply batch.Reply, rest []int64)
}

// DoAll takes what all parts say, or nothing, in one round trip.
func (p *keyspace) DoAll(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	do := p.doKinds
	if !slices.ContainsFunc(parts, func(part batch.Part) bool {
		return part.Request.Policy == nil || part.Request.Bucket.Lease.Length > 0
	}) {
		do = p.doBuckets
	}
	sent := make([]time.Duration, len(parts)) // the limiters have clocks of their own
	for i, part := range parts {
		sent[i] = part.Store.Now()
	}
	replies, err := do(ctx, parts)
	for i := range replies {
		r := &replies[i]
		r.Sent, r.Received = sent[i], parts[i].Store.Now()
		r.Record.Sent, r.Record.Received = r.Sent, r.Received
	}
	return replies, err
}

func (p *keyspace) doKinds(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	keys, args := []any{len(parts)}, []any(nil)
	for _, part := range parts {
		kind, own := part.Store.(jointStore).jointArgs(part.Request)
		isNever := 0
		if part.Request.Never {
			isNever = 1
		}
		keys = append(keys, part.Store.Name(&part.Request.Key))
		args = append(append(args, kind, isNever, len(own)), own...)
	}
	call := &redisclient.Call{Request: append(keys, args...)}
	if err := p.joints.all.Do(ctx, call); err != nil {
		return nil, err
	}
	replies, rest := make([]batch.Reply, len(parts)), call.Response
	for i, part := range parts {
		if len(rest) == 0 {
			return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", i, len(parts))
		}
		replies[i], rest = part.Store.(jointStore).jointReply(rest)
	}
	return replies, nil
}

func (p *keyspace) doBuckets(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	args := make([]any, 0, 2+6*len(parts))
	args = append(args, len(parts))
	for _, part := range parts {
		args = append(args, part.Store.Name(&part.Request.Key))
	}
	for _, part := range parts {
		policy, units := part.Request.Policy, part.Request.Bucket.Units
		if part.Request.Never {
			units = policy.Full() + 1
		}
		args = append(args, part.Store.(*buckets).argsOf(policy)[:]...)
		args = append(args, units, -part.Request.Bucket.Lowest)
	}
	call := &redisclient.Call{Request: args}
	if err := p.joints.buckets.Do(ctx, call); err != nil {
		return nil, err
	}
	if len(call.Response) != 1+2*len(parts) {
		return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", len(call.Response)/2, len(parts))
	}
	replies := make([]batch.Reply, len(parts))
	for i := range replies {
		state := bucketState(call.Response[1+2*i])
		state.At = call.Response[0]
		state.LeaseEnds = time.Duration(call.Response[2+2*i]) * time.Microsecond
		replies[i].State = state
	}
	return replies, nil
}
