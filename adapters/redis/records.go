package redis

import (
	"context"
	_ "embed"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
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
	check   func(*limit.Take) error
	prefix  string
	seed    maphash.Seed
	policy  atomic.Pointer[recordPolicy]
	changes sync.Mutex // serializes changes of the policy
	calls   *scriptBatcher
	joints  *scriptBatcher // of calls to several limiters
	blocks  *scriptBatcher
	now     func() time.Duration
	time    func() []any // in tests, the time for the script
}

// A recordPolicy is a policy as a script takes it. A call uses one from its beginning to its end, so a
// change of the policy needs no lock.
type recordPolicy struct {
	description limit.Description
	version     int64                                // how often the limiter's policy has changed
	args        func(*limit.Key) []any               // the script's arguments before what it does
	waitArgs    func(key *limit.Key, args []any) any // the last argument of a call that may wait; nil if it has none
	denials     batch.Cache[[]denial]                // of a key, newest first
}

// max returns how many tokens the policy allows at most.
func (p *recordPolicy) max() int64 { return p.description.Limit }

// A denial is a Decision about all costs from least to most of calls that may wait for a time. It holds
// until the key has more tokens, a time after it was sent.
type denial struct {
	least, most    int64
	maxWait        time.Duration
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
	retryAfter time.Duration // until the cost can be spent; of a denial, until it can be allowed
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
	return recordBlockLua + map[string]string{kindCounter: slidingCounterLua, kindLog: slidingLogLua, kindQuota: leasesLua + leasesChangeLua + quotaLua}[kind]
}

// newRecords returns the records of a limiter. The kind, such as "cooldown", is a part of their names.
func newRecords(client goredis.UniversalClient, kind, policyName, script string, policy *recordPolicy, check func(*limit.Take) error) *records {
	if client == nil {
		panic("redis: a " + kind + " needs a client")
	}
	client, prefix, _ := unwrap(client)
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	name := "redis: " + kind
	r := &records{
		name:    name,
		script:  script,
		client:  client,
		oneNode: oneNode,
		check:   check,
		prefix:  keyname.Join(prefix+":"+kind, []string{policyName}),
		seed:    maphash.MakeSeed(),
		calls:   newScriptBatcher(name, client, newScript(recordLua(script)), recordNumbers),
		blocks:  newScriptBatcher(name, client, newScript(recordSetBlockLua), 0),
		joints:  newScriptBatcher("redis: limiter", client, jointScript(), anyNumber),
		now:     func() time.Duration { return time.Since(epoch) },
	}
	r.policy.Store(policy)
	return r
}

// setPolicy replaces the policy by a valid one. Denials by the old one are forgotten.
func (r *records) setPolicy(policy *recordPolicy) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	old := r.policy.Load()
	if err := batch.CheckName(old.description.Name, policy.description.Name); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	policy.version = old.version + 1
	r.policy.Store(policy)
	return nil
}

// Describe returns the maximum of the policy, and the time for which tokens count.
func (r *records) Describe() []limit.Description {
	return []limit.Description{r.policy.Load().description}
}

// Check returns an error if the limiter cannot do a Take.
func (r *records) Check(take limit.Take) error { return r.check(&take) }

// take takes tokens of key. The reply is that of a take that was sent.
func (r *records) take(ctx context.Context, key *limit.Key, take *limit.Take) (limit.Decision, recordReply, error) {
	if err := r.check(take); err != nil {
		return limit.Decision{}, recordReply{}, fmt.Errorf("redis: %w", err)
	}
	hash, p := key.Hash(r.seed), r.policy.Load()
	if take.Mode >= limit.Charging {
		return limit.Decision{}, recordReply{}, r.change(ctx, p, key, hash, take)
	}
	if d, ok := p.cached(hash, take, r.now()); ok {
		return d, recordReply{outcome: outcomeDenied}, nil
	}
	what, cost := takeAll, take.Cost
	switch take.Mode {
	case limit.Looking:
		what = look
	case limit.Partial:
		what = takeUpTo
	}
	if cost > p.max() && what != takeUpTo {
		cost = 0 // it can never be allowed, starts no penalty, and is not counted
	}
	lease := p.newLease(take)
	reply, sent, err := r.call(ctx, p, key, what, min(cost, maxCost), take.MaxWait.Microseconds(), leaseArgs(lease)...)
	if err != nil {
		return limit.Decision{}, recordReply{}, err
	}
	d := lease.Complete(p.decision(reply, take))
	switch {
	case take.Mode == limit.Looking:
	case d.Allowed && take.Cost > 0:
		p.denials.Delete(hash) // a larger cost, which may be in the cache, is denied for longer
	case !d.Allowed && (take.Cost <= p.max() || take.Mode == limit.Partial):
		p.learn(hash, take, d, reply, sent, r.now())
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

// change executes a take that is never denied.
func (r *records) change(ctx context.Context, p *recordPolicy, key *limit.Key, hash uint64, take *limit.Take) error {
	what, tokens := refund, take.Cost
	switch take.Mode {
	case limit.Settling:
		return r.settle(ctx, p, key, hash, take)
	case limit.Charging:
		what = charge
	case limit.Undoing:
		if take.Undo.Version != p.version {
			return nil
		}
		what, tokens = undo, take.Undo.Tokens
	}
	if tokens == 0 {
		return nil
	}
	_, _, err := r.call(ctx, p, key, what, min(tokens, maxCost), take.Undo.Stamp)
	p.denials.Invalidate(hash, r.now())
	return err
}

// remembers returns the denial of a take if this process knows it without asking Redis.
func (r *records) remembers(key *limit.Key, take *limit.Take) (limit.Decision, bool) {
	if take.Mode > limit.Partial {
		return limit.Decision{}, false
	}
	return r.policy.Load().cached(key.Hash(r.seed), take, r.now())
}

// cached returns a denial if this process knows that the key still lacks the cost.
func (p *recordPolicy) cached(hash uint64, take *limit.Take, now time.Duration) (limit.Decision, bool) {
	e, ok := p.denials.Get(hash, now)
	if !ok {
		return limit.Decision{}, false
	}
	cost := needOf(take)
	for _, known := range e.Value {
		age := now - known.received
		if cost < known.least || cost > known.most || now-known.sent >= known.lasts || age > batch.CacheTime {
			continue
		}
		if take.MaxWait != known.maxWait && known.decision.Reason != limit.Blocked {
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

// learn remembers the denial of a take. The time until a cost can be allowed grows with the cost, so if
// it is that of the least cost that the key lacks, or of the largest, it is that of all in between. Of calls
// that may wait, the script returns the time of one cost only.
func (p *recordPolicy) learn(hash uint64, take *limit.Take, d limit.Decision, reply recordReply, sent, received time.Duration) {
	cost := needOf(take)
	newest := denial{cost, cost, take.MaxWait, d, sent, received, min(reply.moreAfter, reply.retryAfter)}
	if take.MaxWait == 0 && reply.moreAfter == reply.retryAfter {
		newest.least = d.Remaining + 1
	}
	if take.MaxWait == 0 && reply.allAfter == reply.retryAfter {
		newest.most = p.max()
	}
	if reply.outcome == outcomeBlocked {
		newest.least, newest.most = 0, p.max()
	}
	all := []denial{newest}
	if e, ok := p.denials.Get(hash, received); ok {
		all = append(all, e.Value[:min(len(e.Value), maxDenials-1)]...)
	}
	p.denials.Put(hash, all, sent, received)
}

// decision converts a reply about a take.
func (p *recordPolicy) decision(reply recordReply, take *limit.Take) limit.Decision {
	cost := take.Cost
	if take.Mode == limit.Partial {
		cost = max(reply.taken, min(cost, 1))
	}
	d := limit.Decision{
		Allowed:    cost == 0 && reply.outcome != outcomeBlocked || reply.outcome == outcomeAllowed,
		Limit:      p.max(),
		ResetAfter: reply.resetAfter,
	}
	if reply.outcome == outcomeAllowed || reply.outcome == outcomeDenied {
		d.Remaining = max(p.max()-reply.used, 0) // charges and other processes may exceed the maximum
	}
	switch {
	case cost > p.max():
		d.Allowed, d.RetryAfter = false, limit.Never
		if reply.outcome == outcomeBlocked {
			d.Reason = limit.Blocked
		}
	case !d.Allowed:
		d.RetryAfter = reply.retryAfter
		d.Reason = reply.reason()
	case cost > 0:
		d.RetryAfter = reply.retryAfter // of a reservation
	}
	if take.Mode == limit.Partial {
		d.Granted = reply.taken
	}
	if take.Receipt && take.Mode != limit.Looking && d.Allowed && cost > 0 {
		d.Receipt = limit.Receipt{Tokens: cost, Stamp: reply.stamp, Version: p.version}
	}
	return d
}

// What a script does with a cost.
const (
	takeAll  = "take" // takes all of it, or nothing
	look     = "look" // decides as take, and changes nothing
	takeUpTo = "upto" // takes as much as is there
	charge   = "charge"
	refund   = "refund"
	undo     = "undo" // refunds what was taken with a stamp
	settle   = "settle"
)

// maxCost is more tokens than any record counts. Scripts count it exactly.
const maxCost = 1 << 52

// reset removes the record of key.
func (r *records) reset(ctx context.Context, key limit.Key) error {
	err := r.client.Del(ctx, keyname.Join(r.prefix, keyname.Parts(&key))).Err()
	r.policy.Load().denials.Invalidate(key.Hash(r.seed), r.now())
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
	r.policy.Load().denials.Invalidate(key.Hash(r.seed), r.now())
	return err
}

// call returns the script's reply, and when the call was sent. The stamp is that of what to undo, or the
// microseconds for which the call may wait, or what a settlement takes of a lease.
func (r *records) call(ctx context.Context, p *recordPolicy, key *limit.Key, what string, cost, stamp int64, lease ...any) (reply recordReply, sent time.Duration, err error) {
	args := p.scriptArgs([]any{1, keyname.Join(r.prefix, keyname.Parts(key))}, key, what, cost, stamp, lease)
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

// scriptArgs appends the arguments of the script.
func (p *recordPolicy) scriptArgs(args []any, key *limit.Key, what string, cost, stamp int64, lease []any) []any {
	own := p.args(key)
	args = append(append(args, own...), what, cost, stamp)
	if stamp > 0 && (what == takeAll || what == look) && p.waitArgs != nil {
		args = append(args, p.waitArgs(key, own))
	}
	return append(args, lease...)
}

// recordNumbers is how many numbers a script returns about a record.
const recordNumbers = 8

func newRecordReply(n []int64) recordReply {
	micros := func(i int) time.Duration { return time.Duration(n[i]) * time.Microsecond }
	return recordReply{n[0], n[1], micros(2), micros(3), micros(4), micros(5), n[6], n[7]}
}

func (r *records) server() (goredis.UniversalClient, bool) { return r.client, r.oneNode }

func (r *records) part(key *limit.Key, take limit.Take) (jointPart, error) {
	if err := r.check(&take); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	p := r.policy.Load()
	return &recordPart{records: r, policy: p, key: key, take: take, lease: p.newLease(&take)}, nil
}

// TakeBatch takes the cost of every request, or of none, in one round trip. If a denial is remembered, it
// makes none.
func (r *records) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	return takeJointly(ctx, r.joints, requests, take)
}
