package redis

import (
	"context"
	_ "embed"
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
	script  string // one of the kinds
	client  goredis.UniversalClient
	oneNode bool // one script may have keys of several calls
	prefix  string
	max     int64
	args    func(*limit.Key) []any // the script's arguments before what it does
	seed    maphash.Seed
	denials batch.Cache[[]denial] // of a key, newest first
	calls   *scriptBatcher
	joints  *scriptBatcher // of calls to several limiters
	blocks  *scriptBatcher
	now     func() time.Duration
	time    func() []any // in tests, the time for the script
}

// A denial is a Decision about all costs from least to most. It holds until the key has more tokens, a
// time after it was sent.
type denial struct {
	least, most    int64
	decision       limit.Decision
	sent, received time.Duration
	lasts          time.Duration
}

// maxDenials bounds what is remembered of a key. Quotas and penalties deny all costs for the same time.
const maxDenials = 4

// A recordReply is what a script found.
type recordReply struct {
	outcome    int64
	used       int64         // tokens that count, after the call
	retryAfter time.Duration // until the same cost can be allowed
	resetAfter time.Duration // until no tokens count
	moreAfter  time.Duration // of a denial, until the key has more tokens
	allAfter   time.Duration // of a denial, until the key has all tokens
	taken      int64
	stamp      int64 // to what the tokens belong that were taken
}

// The outcomes.
const (
	outcomeAllowed       = 0
	outcomePenaltyStarts = 1
	outcomeInPenalty     = 2
	outcomeDenied        = 3
	outcomeBlocked       = 4
)

func (r recordReply) reason() limit.Reason {
	switch r.outcome {
	case outcomePenaltyStarts:
		return limit.BurstExceeded
	case outcomeInPenalty:
		return limit.InCooldown
	case outcomeBlocked:
		return limit.Blocked
	default:
		return limit.NoTokens
	}
}

// The kinds of records, each with a script.
const (
	kindCounter = "counter"
	kindLog     = "log" // also of cooldowns
	kindQuota   = "quota"
)

//go:embed record_block.lua
var recordBlockLua string

//go:embed record_set_block.lua
var recordSetBlockLua string

// recordLua returns the script for records of a kind.
func recordLua(kind string) string {
	return recordBlockLua + map[string]string{kindCounter: slidingCounterLua, kindLog: slidingLogLua, kindQuota: quotaLua}[kind]
}

// newRecords returns the records of a limiter. The kind, such as "cooldown", is a part of their names.
func newRecords(client goredis.UniversalClient, kind, policyName, script string, maximum int64, args func(*limit.Key) []any) records {
	if client == nil {
		panic("redis: a " + kind + " needs a client")
	}
	client, prefix, _ := unwrap(client)
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	name := "redis: " + kind
	return records{
		name:    name,
		script:  script,
		client:  client,
		oneNode: oneNode,
		prefix:  keyname.Join(prefix+":"+kind, []string{policyName}),
		max:     maximum,
		args:    args,
		seed:    maphash.MakeSeed(),
		calls:   newScriptBatcher(name, client, newScript(recordLua(script)), recordNumbers),
		blocks:  newScriptBatcher(name, client, newScript(recordSetBlockLua), 0),
		joints:  newScriptBatcher("redis: limiter", client, jointScript(), anyNumber),
		now:     func() time.Duration { return time.Since(epoch) },
	}
}

// take takes tokens of key. The reply is that of a take that was sent.
func (r *records) take(ctx context.Context, key *limit.Key, take *limit.Take) (limit.Decision, recordReply, error) {
	if err := take.ValidateWindow(); err != nil {
		return limit.Decision{}, recordReply{}, fmt.Errorf("redis: %w", err)
	}
	hash := key.Hash(r.seed)
	if take.Mode > limit.Charging {
		return limit.Decision{}, recordReply{}, r.giveBack(ctx, key, hash, take)
	}
	if d, ok := r.cached(hash, take); ok {
		return d, recordReply{outcome: outcomeDenied}, nil
	}
	what, cost := takeAll, take.Cost
	switch take.Mode {
	case limit.Looking:
		what = look
	case limit.Partial:
		what = takeUpTo
	}
	if cost > r.max && what != takeUpTo {
		cost = 0 // it can never be allowed, starts no penalty, and is not counted
	}
	reply, sent, err := r.call(ctx, key, what, min(cost, maxCost), 0)
	if err != nil {
		return limit.Decision{}, recordReply{}, err
	}
	d := r.decision(reply, take)
	switch {
	case take.Mode == limit.Looking:
	case d.Allowed && take.Cost > 0:
		r.denials.Delete(hash) // a larger cost, which may be in the cache, is denied for longer
	case !d.Allowed && (take.Cost <= r.max || take.Mode == limit.Partial):
		r.learn(hash, needOf(take), d, reply, sent)
	}
	return d, reply, nil
}

// needOf returns the tokens without which a take is denied.
func needOf(take *limit.Take) int64 {
	if take.Mode == limit.Partial {
		return min(take.Cost, 1)
	}
	return take.Cost
}

// giveBack returns tokens of key.
func (r *records) giveBack(ctx context.Context, key *limit.Key, hash uint64, take *limit.Take) error {
	what, tokens := undo, take.Undo.Tokens
	if take.Mode == limit.Returning {
		what, tokens = refund, take.Cost
	}
	if tokens == 0 {
		return nil
	}
	_, _, err := r.call(ctx, key, what, min(tokens, maxCost), take.Undo.Stamp)
	r.denials.Invalidate(hash, r.now())
	return err
}

// remembers returns the denial of a take if this process knows it without asking Redis.
func (r *records) remembers(key *limit.Key, take *limit.Take) (limit.Decision, bool) {
	if take.Mode > limit.Partial {
		return limit.Decision{}, false
	}
	return r.cached(key.Hash(r.seed), take)
}

// cached returns a denial if this process knows that the key still lacks the cost.
func (r *records) cached(hash uint64, take *limit.Take) (limit.Decision, bool) {
	now, cost := r.now(), needOf(take)
	e, ok := r.denials.Get(hash, now)
	if !ok {
		return limit.Decision{}, false
	}
	for _, known := range e.Value {
		age := now - known.received
		if cost < known.least || cost > known.most || now-known.sent >= known.lasts || age > batch.CacheTime {
			continue
		}
		// RetryAfter counts from when the response arrived, so that it is long enough.
		d := known.decision
		d.RetryAfter -= age
		d.ResetAfter -= age
		if d.Reason == limit.BurstExceeded {
			d.Reason = limit.InCooldown
		}
		return d, true
	}
	return limit.Decision{}, false
}

// learn remembers the denial of a cost. The time until a cost can be allowed grows with the cost, so if
// it is that of the least cost that the key lacks, or of the largest, it is that of all in between.
func (r *records) learn(hash uint64, cost int64, d limit.Decision, reply recordReply, sent time.Duration) {
	now := r.now()
	newest := denial{cost, cost, d, sent, now, reply.moreAfter}
	if reply.moreAfter == reply.retryAfter {
		newest.least = d.Remaining + 1
	}
	if reply.allAfter == reply.retryAfter {
		newest.most = r.max
	}
	if reply.outcome == outcomeBlocked {
		newest.least = 0
	}
	all := []denial{newest}
	if e, ok := r.denials.Get(hash, now); ok {
		all = append(all, e.Value[:min(len(e.Value), maxDenials-1)]...)
	}
	r.denials.Put(hash, all, sent, now)
}

// decision converts a reply about a take.
func (r *records) decision(reply recordReply, take *limit.Take) limit.Decision {
	cost := take.Cost
	if take.Mode == limit.Partial {
		cost = max(reply.taken, min(cost, 1))
	}
	d := limit.Decision{
		Allowed:    cost == 0 && reply.outcome != outcomeBlocked || reply.outcome == outcomeAllowed,
		Limit:      r.max,
		ResetAfter: reply.resetAfter,
	}
	if reply.outcome == outcomeAllowed || reply.outcome == outcomeDenied {
		d.Remaining = max(r.max-reply.used, 0) // another process may have a larger maximum
	}
	switch {
	case cost > r.max:
		d.Allowed, d.RetryAfter = false, limit.Never
		if reply.outcome == outcomeBlocked {
			d.Reason = limit.Blocked
		}
	case !d.Allowed:
		d.RetryAfter = reply.retryAfter
		d.Reason = reply.reason()
	}
	if take.Mode == limit.Partial {
		d.Granted = reply.taken
	}
	if take.Receipt && take.Mode != limit.Looking && d.Allowed && cost > 0 {
		d.Receipt = limit.Receipt{Tokens: cost, Stamp: reply.stamp}
	}
	return d
}

// What a script does with a cost.
const (
	takeAll  = "take" // takes all of it, or nothing
	look     = "look" // decides as take, and changes nothing
	takeUpTo = "upto" // takes as much as is there
	refund   = "refund"
	undo     = "undo" // refunds what was taken with a stamp
)

// maxCost is more tokens than any record counts. Scripts count it exactly.
const maxCost = 1 << 52

// reset removes the record of key.
func (r *records) reset(ctx context.Context, key limit.Key) error {
	err := r.client.Del(ctx, keyname.Join(r.prefix, keyname.Parts(&key))).Err()
	r.denials.Invalidate(key.Hash(r.seed), r.now())
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// block denies key for d. Other processes may admit it for as long as their round trips take.
func (r *records) block(ctx context.Context, key *limit.Key, d time.Duration) error {
	if err := limit.CheckBlock(d); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	args := []any{1, keyname.Join(r.prefix, keyname.Parts(key)), d.Microseconds()}
	if r.time != nil {
		args = append(args, r.time()...)
	}
	err := r.blocks.Do(ctx, &scriptCall{Request: args})
	r.denials.Invalidate(key.Hash(r.seed), r.now())
	return err
}

// call returns the script's reply, and when the call was sent.
func (r *records) call(ctx context.Context, key *limit.Key, what string, cost, stamp int64) (reply recordReply, sent time.Duration, err error) {
	args := append([]any{1, keyname.Join(r.prefix, keyname.Parts(key))}, r.args(key)...)
	args = append(args, what, cost, stamp)
	if r.time != nil {
		args = append(args, r.time()...)
	}
	sent = r.now()
	call := &scriptCall{Request: args}
	if err := r.calls.Do(ctx, call); err != nil {
		return recordReply{}, 0, err
	}
	return newRecordReply(call.Response), sent, nil
}

// recordNumbers is how many numbers a script returns about a record.
const recordNumbers = 8

func newRecordReply(n []int64) recordReply {
	micros := func(i int) time.Duration { return time.Duration(n[i]) * time.Microsecond }
	return recordReply{n[0], n[1], micros(2), micros(3), micros(4), micros(5), n[6], n[7]}
}

func (r *records) server() (goredis.UniversalClient, bool) { return r.client, r.oneNode }

func (r *records) part(key *limit.Key, take limit.Take) (jointPart, error) {
	if err := take.ValidateWindow(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &recordPart{records: r, key: key, take: take}, nil
}

// TakeBatch takes the cost of every request, or of none, in one round trip. If a denial is remembered, it
// makes none.
func (r *records) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	return takeJointly(ctx, r.joints, requests, take)
}
