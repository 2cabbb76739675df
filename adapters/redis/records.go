package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A records value is what cooldowns, sliding windows and quotas have in common: a key has one record, which
// one script reads and changes, and denials are cached.
type records struct {
	name    string // for errors
	client  goredis.UniversalClient
	prefix  string
	max     int64
	args    func() []any // the script's arguments before the cost
	seed    maphash.Seed
	denials batch.Cache[denial]
	calls   *scriptBatcher
	now     func() time.Duration
	time    func() []any // in tests, the time for the script
}

// A denial is a denied cost. Another cost may be denied for longer, or not at all.
type denial struct {
	cost     int64
	decision limit.Decision
	lasts    time.Duration // until the key has more tokens
}

// A recordReply is what a script found.
type recordReply struct {
	outcome    int64
	used       int64         // tokens that count, after the call
	retryAfter time.Duration // until the same cost can be allowed
	resetAfter time.Duration // until no tokens count
	moreAfter  time.Duration // of a denial, until the key has more tokens
}

// The outcomes.
const (
	outcomeAllowed       = 0
	outcomePenaltyStarts = 1
	outcomeInPenalty     = 2
	outcomeDenied        = 3
)

func (r recordReply) reason() limit.Reason {
	switch r.outcome {
	case outcomePenaltyStarts:
		return limit.BurstExceeded
	case outcomeInPenalty:
		return limit.InCooldown
	default:
		return limit.NoTokens
	}
}

// newRecords returns the records of a limiter. The kind, such as "cooldown", is a part of their names.
func newRecords(client goredis.UniversalClient, kind, policyName, lua string, maximum int64, args func() []any) records {
	if client == nil {
		panic("redis: a " + kind + " needs a client")
	}
	client, prefix, _ := unwrap(client)
	epoch := time.Now()
	name := "redis: " + kind
	return records{
		name:   name,
		client: client,
		prefix: keyname.Join(prefix+":"+kind, []string{policyName}),
		max:    maximum,
		args:   args,
		seed:   maphash.MakeSeed(),
		calls:  newScriptBatcher(name, client, newScript(lua), 5),
		now:    func() time.Duration { return time.Since(epoch) },
	}
}

// consume takes cost tokens of key, or none of them.
func (r *records) consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, recordReply, error) {
	if cost < 0 {
		return limit.Decision{}, recordReply{}, fmt.Errorf("redis: cost is %d; it must not be negative", cost)
	}
	hash := key.Hash(r.seed)
	if d, ok := r.cached(hash, cost); ok {
		return d, recordReply{outcome: outcomeDenied}, nil
	}
	// A cost that can never be allowed starts no penalty, and is not counted.
	counted := cost
	if cost > r.max {
		counted = 0
	}
	reply, sent, err := r.call(ctx, &key, counted)
	if err != nil {
		return limit.Decision{}, recordReply{}, err
	}
	d := r.decision(reply, cost)
	switch {
	case d.Allowed && cost > 0:
		r.denials.Delete(hash) // a larger cost, which may be in the cache, is denied for longer
	case !d.Allowed && cost <= r.max:
		r.denials.Put(hash, denial{cost, d, reply.moreAfter}, sent, r.now())
	}
	return d, reply, nil
}

// cached returns a denial if this process knows that the key still lacks the cost.
func (r *records) cached(hash uint64, cost int64) (limit.Decision, bool) {
	now := r.now()
	e, ok := r.denials.Get(hash, now)
	if !ok || cost != e.Value.cost || now-e.Sent >= e.Value.lasts {
		return limit.Decision{}, false
	}
	// RetryAfter counts from when the response arrived, so that it is long enough.
	d, age := e.Value.decision, now-e.Received
	d.RetryAfter -= age
	d.ResetAfter -= age
	if d.Reason == limit.BurstExceeded {
		d.Reason = limit.InCooldown
	}
	return d, true
}

// decision converts a reply about a cost.
func (r *records) decision(reply recordReply, cost int64) limit.Decision {
	d := limit.Decision{
		Allowed:    cost == 0 || reply.outcome == outcomeAllowed,
		Limit:      r.max,
		ResetAfter: reply.resetAfter,
	}
	if reply.outcome == outcomeAllowed || reply.outcome == outcomeDenied {
		d.Remaining = max(r.max-reply.used, 0) // another process may have a larger maximum
	}
	switch {
	case cost > r.max:
		d.Allowed, d.RetryAfter = false, limit.Never
	case !d.Allowed:
		d.RetryAfter = reply.retryAfter
		d.Reason = reply.reason()
	}
	return d
}

// refund returns tokens of key.
func (r *records) refund(ctx context.Context, key limit.Key, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("redis: refund is %d; it must not be negative", tokens)
	}
	if tokens == 0 {
		return nil
	}
	_, _, err := r.call(ctx, &key, -min(tokens, maxRefund))
	r.denials.Invalidate(key.Hash(r.seed), r.now())
	return err
}

// maxRefund is more tokens than any record counts. Scripts count it exactly.
const maxRefund = 1 << 52

// reset removes the record of key.
func (r *records) reset(ctx context.Context, key limit.Key) error {
	err := r.client.Del(ctx, keyname.Join(r.prefix, keyname.Parts(&key))).Err()
	r.denials.Invalidate(key.Hash(r.seed), r.now())
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// call returns the script's reply, and when the call was sent.
func (r *records) call(ctx context.Context, key *limit.Key, cost int64) (reply recordReply, sent time.Duration, err error) {
	args := append([]any{1, keyname.Join(r.prefix, keyname.Parts(key))}, r.args()...)
	args = append(args, cost)
	if r.time != nil {
		args = append(args, r.time()...)
	}
	sent = r.now()
	call := &scriptCall{Request: args}
	if err := r.calls.Do(ctx, call); err != nil {
		return recordReply{}, 0, err
	}
	micros := func(i int) time.Duration { return time.Duration(call.Response[i]) * time.Microsecond }
	return recordReply{call.Response[0], call.Response[1], micros(2), micros(3), micros(4)}, sent, nil
}
