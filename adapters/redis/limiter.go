package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Limiter is a [ratelimit.Limiter] whose buckets are in Redis, so that all processes
// share them. It decides as a limiter in memory does, to the token and the
// millisecond, by the clock of the Redis server.
//
// A decision is one round trip, in which calls that wait at the same time share a
// script. A bucket that is known to hold too little is refused without one, for a second at
// most; what others have taken since is not in the wait that such a refusal tells. Errors are those of the client and of Redis, and ctx's; after ctx's, whether
// the tokens were taken is unknown. Nothing is tried twice.
//
// A bucket is a string under
//
//	penstock:limit:<policy>:<part>:<part>...
//
// that expires when the bucket is full. Limiters whose policies have the same name
// share buckets, in one process and in many; a policy without a name is called
// after its numbers.
type Limiter struct {
	client  goredis.UniversalClient
	units   ratelimit.Units
	one     *script // about one call
	many    *script
	joint   *script // of several limiters
	prefix  string
	policy  [2]any // what the script is told of it
	oneNode bool   // so that one script may have many keys
	seed    maphash.Seed
	denials denials
	flights flights
	blocks  *flights
	now     func() time.Duration
	time    func() []any // told to the script, in tests
}

var (
	_ ratelimit.Blocker  = (*Limiter)(nil)
	_ ratelimit.Reserver = (*Limiter)(nil)
)

// NewLimiter returns a limiter. It panics if the policy is not valid or the client is
// nil. It sends nothing yet.
func NewLimiter(client goredis.UniversalClient, policy ratelimit.Policy) *Limiter {
	if client == nil {
		panic("redis: NewLimiter needs a client")
	}
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	l := &Limiter{
		client:  client,
		units:   policy.Units(),
		one:     newScript(bucketLua + takeLua),
		many:    newScript(bucketLua + consumeLua),
		joint:   newScript(bucketLua + jointLua),
		oneNode: oneNode,
		seed:    maphash.MakeSeed(),
		now:     func() time.Duration { return time.Since(epoch) },
	}
	l.prefix = name("penstock:limit", []string{policyName(policy)})
	l.policy = [2]any{strconv.FormatInt(l.units.PerMicro(), 10), strconv.FormatInt(l.units.Full(), 10)}
	l.blocks = newFlights("limiter", client, newScript(bucketLua+blockLua), 0)
	l.flights.what, l.flights.carry, l.flights.obedient = "limiter", l.carry, obeysDeadlines(client)
	return l
}

func policyName(p ratelimit.Policy) string {
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
func (l *Limiter) Consume(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	if cost < 0 {
		return ratelimit.Decision{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	}
	need := l.units.Need(cost)
	hash := key.Hash(l.seed)
	if d, ok := l.denials.decide(hash, l.now(), need, &l.units); ok {
		return d, nil
	}
	c, err := l.call(ctx, &key, need, 0)
	if err != nil {
		return ratelimit.Decision{}, err
	}
	left := c.have
	if need <= left {
		left -= need
	}
	l.denials.learn(hash, left, need, c.sent, c.came)
	return decide(c.have, need, &l.units), nil
}

func (l *Limiter) call(ctx context.Context, key *ratelimit.Key, need, wait int64) (*call, error) {
	c := &call{key: name(l.prefix, parts(key)), need: need, wait: wait}
	return c, l.flights.do(ctx, c)
}

// carry makes calls in one round trip.
func (l *Limiter) carry(ctx context.Context, calls []*call) {
	sent := l.now()
	l.ask(ctx, calls)
	came := l.now()
	for _, c := range calls {
		c.sent, c.came = sent, came
	}
}

func (l *Limiter) ask(ctx context.Context, calls []*call) {
	alone := len(calls) == 1 || !l.oneNode
	for _, c := range calls {
		alone = alone || c.wait > 0
	}
	if !alone {
		decode(l.many.run(ctx, l.client, [][]any{l.args(calls)})[0], calls)
		return
	}
	args := make([][]any, len(calls))
	for i, c := range calls {
		args[i] = l.args(calls[i:i+1], c.wait)
	}
	for i, reply := range l.one.run(ctx, l.client, args) {
		calls[i].have, calls[i].err = reply.Int64()
	}
}

// args are a script's arguments for calls, the number of keys first.
func (l *Limiter) args(calls []*call, waits ...int64) []any {
	args := make([]any, 0, 1+2*len(calls)+len(l.policy)+2)
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, c.key)
	}
	args = append(args, l.policy[:]...)
	for _, c := range calls {
		args = append(args, min(c.need, l.units.Full()+1)) // more is not exact in Lua
	}
	for _, wait := range waits {
		args = append(args, wait)
	}
	if l.time != nil {
		args = append(args, l.time()...)
	}
	return args
}

// decode sets what the buckets of many calls held.
func decode(reply *goredis.Cmd, calls []*call) {
	have, err := reply.Int64Slice()
	if err == nil && len(have) != len(calls) {
		err = fmt.Errorf("the script has answered %d of %d calls", len(have), len(calls))
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.have = have[i]
		}
	}
}
