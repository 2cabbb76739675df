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
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/limit"
)

//go:embed joint.lua
var jointLua string

// jointScript returns the script for limiters of different kinds.
func jointScript() *script { return &script{Forms: jointForms()} }

// jointForms is shared by all limiters, because the script is long.
//
//nolint:gochecknoglobals // never changed
var jointForms = sync.OnceValue(func() *redisclient.Forms { return newScript(jointSource()).Forms })

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

// A jointPart is a request to one limiter of a call to several.
type jointPart interface {
	// args returns the name of the bucket or record, its kind, whether the cost is never allowed, and
	// the arguments of the kind's script.
	args() (name, kind string, never bool, args []any)
	// decide returns the Decision that follows from the reply, and the numbers of other replies behind
	// it. denied reports whether a part before this one has denied.
	decide(reply []int64, denied bool) (d limit.Decision, rest []int64)
	// learn remembers what the call has left.
	learn(d *limit.Decision, allowed bool, sent, received time.Duration)
	// now returns the time of the limiter's clock.
	now() time.Duration
}

// A jointLimiter can be part of a call to several limiters.
type jointLimiter interface {
	limit.Limiter
	server() (client goredis.UniversalClient, oneNode bool)
	part(key *limit.Key, take limit.Take) (jointPart, error)
}

// batchesWith reports whether two limiters are on one server. On a Cluster it returns false, because the
// keys may be on different nodes.
func batchesWith(one jointLimiter, other limit.Limiter) bool {
	o, ok := other.(jointLimiter)
	if !ok {
		return false
	}
	client, oneNode := one.server()
	otherClient, _ := o.server()
	return oneNode && client == otherClient
}

// takeJointly takes the cost of every request, or of none, in one round trip. If a denial is remembered, it
// makes none.
func takeJointly(ctx context.Context, calls *scriptBatcher, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	parts := make([]jointPart, len(requests))
	for i, r := range requests {
		one := take
		one.Cost = r.Cost
		part, err := r.Limiter.(jointLimiter).part(&r.Key, one)
		if err != nil {
			return nil, err
		}
		parts[i] = part
	}
	if decisions := limit.RememberedDenials(requests, take.MaxWait); decisions != nil {
		return decisions, nil
	}
	args, err := jointArgs(parts)
	if err != nil {
		return nil, err
	}
	call := &scriptCall{Request: args}
	sent := make([]time.Duration, len(parts)) // the limiters have clocks of their own
	for i, p := range parts {
		sent[i] = p.now()
	}
	if err := calls.Do(ctx, call); err != nil {
		return nil, err
	}
	decisions, denied, rest := make([]limit.Decision, len(parts)), false, call.Response
	for i, p := range parts {
		if len(rest) == 0 {
			return nil, fmt.Errorf("redis: limiter: the script answered %d of %d requests", i, len(parts))
		}
		decisions[i], rest = p.decide(rest, denied)
		denied = denied || !decisions[i].Allowed
	}
	for i, p := range parts {
		p.learn(&decisions[i], !denied, sent[i], p.now())
		if denied {
			decisions[i].Receipt = limit.Receipt{}
		}
	}
	return decisions, nil
}

func jointArgs(parts []jointPart) ([]any, error) {
	keys, args := []any{len(parts)}, []any(nil)
	for _, p := range parts {
		name, kind, never, own := p.args()
		if slices.Contains(keys, any(name)) { // each would decide without what the other takes
			return nil, fmt.Errorf("redis: two requests charge %q; give the policies of the limiters different names", name)
		}
		isNever := 0
		if never {
			isNever = 1
		}
		keys = append(keys, name)
		args = append(append(args, kind, isNever, len(own)), own...)
	}
	return append(keys, args...), nil
}

// A bucketPart is a request to a [Limiter].
type bucketPart struct {
	*batch.BucketPart

	limiter *Limiter
	policy  *bucketPolicy
	key     *limit.Key
}

func (p *bucketPart) now() time.Duration { return p.limiter.now() }

func (p *bucketPart) args() (name, kind string, never bool, args []any) {
	args = append(p.policy.args[:], partArgs(p.What)...)
	return keyname.Join(p.limiter.prefix, keyname.Parts(p.key)), "bucket", p.IsNever(), args
}

func (p *bucketPart) decide(reply []int64, _ bool) (limit.Decision, []int64) {
	return p.Decide(partState(reply)), reply[partNumbers:]
}

func (p *bucketPart) learn(_ *limit.Decision, allowed bool, sent, received time.Duration) {
	p.Learn(allowed, sent, received)
}

// A recordPart is a request to a limiter with records.
type recordPart struct {
	*batch.RecordPart

	records   *records
	policy    *recordPolicy
	key       *limit.Key
	reply     batch.RecordReply
	onPenalty func(*batch.RecordReply, limit.Decision) // may be nil
}

func (p *recordPart) now() time.Duration { return p.records.now() }

func (p *recordPart) args() (name, kind string, never bool, args []any) {
	return keyname.Join(p.records.prefix, keyname.Parts(p.key)), p.records.script, p.IsNever(), p.policy.scriptArgs(nil, p.key, p.What)
}

func (p *recordPart) decide(numbers []int64, denied bool) (limit.Decision, []int64) {
	p.reply = batch.NewRecordReply(numbers)
	d := p.Decide(p.reply)
	if p.reply.Outcome == batch.OutcomePenaltyStarts && !denied && p.onPenalty != nil {
		p.onPenalty(&p.reply, d)
	}
	return d, numbers[batch.RecordNumbers:]
}

func (p *recordPart) learn(d *limit.Decision, allowed bool, sent, received time.Duration) {
	p.Learn(d, allowed, sent, received)
}
