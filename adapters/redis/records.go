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

// A records value is what cooldowns, sliding windows and quotas have in common: a key has one
// record, which one script reads and changes, and denials are cached.
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

// A recordPolicy is a policy as a script takes it. A call uses one from its beginning to its end,
// so a change of the policy needs no lock.
type recordPolicy struct {
	*batch.RecordPolicy

	// args returns the script's arguments before what it does, and the last one of a call that may
	// wait, nil if it has none.
	args func(*limit.Key) (before []any, wait any)
}

// The kinds of records, each with a script.
const (
	kindCounter = "counter"
	kindLog     = "log" // and of cooldowns
	kindQuota   = "quota"
)

//go:embed record_block.lua
var recordBlockLua string

//go:embed record_set_block.lua
var recordSetBlockLua string

// recordLua returns the script for records of a kind.
func recordLua(kind string) string {
	return recordBlockLua + map[string]string{kindCounter: slidingCounterLua, kindLog: slidingLogLua, kindQuota: leaseFunctionsLua() + quotaLua}[kind]
}

// newRecords returns the records of a limiter. The kind, such as "cooldown", is a part of their
// names.
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
		calls:   newScriptBatcher(name, client, newScript(recordLua(script)), batch.RecordNumbers),
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
	if err := batch.CheckName(old.Description.Name, policy.Description.Name); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	policy.RecordPolicy = policy.Following(old.RecordPolicy)
	r.policy.Store(policy)
	return nil
}

// Describe returns the maximum of the policy, and the time for which tokens count.
func (r *records) Describe() []limit.Description {
	return []limit.Description{r.policy.Load().Description}
}

// Check returns an error if the limiter cannot do a Take.
func (r *records) Check(take limit.Take) error { return r.check(&take) }

// take takes tokens of key. The reply is that of a take that was sent.
func (r *records) take(ctx context.Context, key *limit.Key, take *limit.Take) (limit.Decision, batch.RecordReply, error) {
	if err := r.check(take); err != nil {
		return limit.Decision{}, batch.RecordReply{}, fmt.Errorf("redis: %w", err)
	}
	p := r.policy.Load()
	return p.Take(key.Hash(r.seed), take, r.now, func(what batch.RecordTake) (batch.RecordReply, error) {
		return r.call(ctx, p, key, what)
	})
}

// remembers returns the denial of a take if this process knows it without asking Redis.
func (r *records) remembers(key *limit.Key, take *limit.Take) (limit.Decision, bool) {
	return r.policy.Load().Remembered(key.Hash(r.seed), take, r.now())
}

func (r *records) reset(ctx context.Context, key limit.Key) error {
	err := r.client.Del(ctx, keyname.Join(r.prefix, keyname.Parts(&key))).Err()
	r.policy.Load().Invalidate(key.Hash(r.seed), r.now())
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
	r.policy.Load().Invalidate(key.Hash(r.seed), r.now())
	return err
}

func (r *records) call(ctx context.Context, p *recordPolicy, key *limit.Key, what batch.RecordTake) (batch.RecordReply, error) {
	args := append(make([]any, 0, 12), 1, keyname.Join(r.prefix, keyname.Parts(key)))
	args = p.scriptArgs(args, key, what)
	if r.time != nil {
		args = append(args, r.time()...)
	}
	sent, call := r.now(), &scriptCall{Request: args}
	if err := r.calls.Do(ctx, call); err != nil {
		return batch.RecordReply{}, err
	}
	reply := batch.NewRecordReply(call.Response)
	reply.Sent, reply.Received = sent, r.now()
	return reply, nil
}

func (p *recordPolicy) scriptArgs(args []any, key *limit.Key, what batch.RecordTake) []any {
	before, wait := p.args(key)
	args = append(append(args, before...), what.What, what.Cost, what.Stamp)
	if what.Stamp > 0 && what.What != batch.Undo && wait != nil {
		args = append(args, wait)
	}
	if what.What == batch.Settle {
		args[len(args)-1] = what.Lease.Excess // in place of a stamp
		return append(args, what.Lease.ID, what.Lease.Returns, limit.MaxLeases)
	}
	return append(args, leaseArgs(what.Lease)...)
}

// BucketPrefix returns how the names of all records begin in the store: limiters with an equal one share them.
func (r *records) BucketPrefix() string { return r.prefix }

func (r *records) server() (goredis.UniversalClient, bool) { return r.client, r.oneNode }

func (r *records) part(key *limit.Key, take limit.Take) (jointPart, error) {
	if err := r.check(&take); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	p := r.policy.Load()
	return &recordPart{RecordPart: p.Part(key.Hash(r.seed), take), records: r, policy: p, key: key}, nil
}

// TakeBatch takes the cost of every request, or of none, in one round trip. If a denial is
// remembered, it makes none.
func (r *records) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	return takeJointly(ctx, r.joints, requests, take)
}
