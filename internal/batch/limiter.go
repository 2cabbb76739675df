package batch

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Limiter decides about takes from a [Store]. All that limiters of different kinds and on different
// stores have in common is here; adapters embed it. It is safe for concurrent use.
type Limiter struct {
	name    string // of the package of the adapter, with which errors begin
	store   Store
	check   func(limit.Take) error
	seed    maphash.Seed
	now     func() time.Duration // of the store
	policy  *atomic.Pointer[policy]
	forgets bool // remembers no denial

	onPenalty func(limit.Penalty) // of a cooldown; may be nil
}

// A Changeable is a limiter whose policy, of type P, can change.
type Changeable[P any] struct {
	*Limiter

	compile func(P) (*policy, error)
	changes sync.Mutex // held by SetPolicy
}

// A Cooldown is a limiter with a [limit.CooldownPolicy].
type Cooldown struct {
	*Limiter
}

var (
	_ adapter.Checker                  = (*Limiter)(nil)
	_ limit.Blocker                    = (*Limiter)(nil)
	_ adapter.Rememberer               = (*Limiter)(nil)
	_ adapter.Batcher                  = (*Limiter)(nil)
	_ adapter.Describer                = (*Limiter)(nil)
	_ limit.PolicySetter[limit.Policy] = (*Changeable[limit.Policy])(nil)
)

func newLimiter(name string, store Store, check func(limit.Take) error, first *policy) *Limiter {
	l := &Limiter{name: name, store: store, check: check, seed: maphash.MakeSeed(), now: store.Now, policy: new(atomic.Pointer[policy])}
	l.policy.Store(first)
	return l
}

func newChangeable[P any](name string, store Store, check func(limit.Take) error, compile func(P) (*policy, error), first P) *Changeable[P] {
	p, err := compile(first)
	if err != nil {
		panic(err.Error())
	}
	return &Changeable[P]{Limiter: newLimiter(name, store, check, p), compile: compile}
}

// SetPolicy replaces the numbers of the limiter's policy in this process. The policy must have the
// limiter's name; an unnamed policy cannot change, because its numbers name what the store has.
// Calls in progress use the old numbers. Denials by the old policy are forgotten.
func (l *Changeable[P]) SetPolicy(p P) error {
	l.changes.Lock()
	defer l.changes.Unlock()
	next, err := l.compile(p)
	old := l.policy.Load()
	if err == nil {
		err = checkName(old.description.Name, next.description.Name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	l.policy.Store(next.following(old))
	return nil
}

// InTransaction returns a limiter with the store that in returns for its own one, which decides in a
// transaction, whose outcome may be undone: the limiter remembers no denial, and reports no penalty. It
// follows changes of the policy. ok is false if l is not a limiter of this package, or if in returns
// nil.
func InTransaction(l limit.Limiter, in func(Store) Store) (tx *Limiter, ok bool) {
	joint, ok := l.(jointLimiter)
	if !ok {
		return nil, false
	}
	own := joint.base()
	store := in(own.store)
	if store == nil {
		return nil, false
	}
	return &Limiter{name: own.name, store: store, check: own.check, seed: own.seed, now: store.Now, policy: own.policy, forgets: true}, true
}

// current returns the policy of a call, from its beginning to its end: a change needs no lock.
func (l *Limiter) current() *policy {
	p := l.policy.Load()
	if l.forgets {
		return p.withoutMemory()
	}
	return p
}

func (l *Limiter) validate(take limit.Take) error {
	if err := l.check(take); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to a
// second more.
func (l *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := l.validate(take); err != nil {
		return limit.Decision{}, err
	}
	p, hash := l.current(), key.Hash(l.seed)
	if p.bucket != nil {
		return p.bucket.Take(hash, &take, l.now, func(what Take) (Reply, error) {
			return l.store.Do(ctx, p.bucketRequest(key, &take, what))
		})
	}
	d, reply, err := p.record.Take(hash, &take, l.now, func(what RecordTake) (RecordReply, error) {
		reply, err := l.store.Do(ctx, p.recordRequest(key, &take, what, l.store))
		return reply.Record, err
	})
	if err == nil && reply.Outcome == OutcomePenaltyStarts && take.Mode != mode.Looking {
		l.penalize(p, key, take.Cost, &reply, d)
	}
	return d, err
}

// penalize reports a penalty that starts.
func (l *Limiter) penalize(p *policy, key limit.Key, cost int64, reply *RecordReply, d limit.Decision) {
	if l.onPenalty != nil {
		l.onPenalty(limit.Penalty{Policy: p.cooldown, Key: key, Count: reply.Used + cost, RetryAfter: d.RetryAfter})
	}
}

// Check returns an error if the limiter cannot do a Take.
func (l *Limiter) Check(take limit.Take) error { return l.check(take) }

// Describe returns the limit of the policy.
func (l *Limiter) Describe() []limit.Description {
	return []limit.Description{l.policy.Load().description}
}

// RemembersDenial returns the denial of a Take if this process knows it without asking the store.
func (l *Limiter) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	if l.forgets {
		return limit.Decision{}, false
	}
	p, hash := l.policy.Load(), key.Hash(l.seed)
	if p.bucket != nil {
		return p.bucket.Remembered(hash, &take, l.now())
	}
	return p.record.Remembered(hash, &take, l.now())
}

// Reset forgets what key has taken, and ends a block and a penalty. Other processes may deny the key
// for up to a second more.
func (l *Limiter) Reset(ctx context.Context, key limit.Key) error { return l.block(ctx, key, 0) }

// Block denies key for d; after that, its bucket is full, or nothing counts. Other processes may
// admit it for as long as their round trips take.
func (l *Limiter) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	if err := adapter.CheckBlock(d); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return l.block(ctx, key, d)
}

func (l *Limiter) block(ctx context.Context, key limit.Key, d time.Duration) error {
	err := l.store.SetBlock(ctx, &key, d)
	l.invalidate(key)
	return err
}

// invalidate makes the next call for key ask the store.
func (l *Limiter) invalidate(key limit.Key) {
	p, hash := l.policy.Load(), key.Hash(l.seed)
	if p.bucket != nil {
		p.bucket.Invalidate(hash, l.now())
	} else {
		p.record.Invalidate(hash, l.now())
	}
}

// BucketPrefix returns how the names of all buckets or records begin in the store: limiters with an
// equal one share them.
func (l *Limiter) BucketPrefix() string { return l.store.NamePrefix() }

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(ctx context.Context, key limit.Key) (int64, error) {
	look := RecordTake{What: Look}
	reply, err := c.store.Do(ctx, c.current().recordRequest(key, &limit.Take{Mode: mode.Looking}, look, c.store))
	return reply.Record.Used, err
}

// ForgetDenials makes the next call for every key ask the store.
func ForgetDenials(c *Cooldown) { c.policy.Load().record.InvalidateAll(c.now()) }
