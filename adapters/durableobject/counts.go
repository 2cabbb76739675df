package durableobject

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A counts value is what windows, quotas and cooldowns have in common: limiters that count tokens,
// and are no buckets.
type counts struct {
	records
	check   func(*limit.Take) error
	policy  atomic.Pointer[countPolicy]
	changes sync.Mutex // held by setPolicy
}

// A countPolicy is a policy as the Worker takes it. A call uses one from its beginning to its end,
// so a change of the policy needs no lock.
type countPolicy struct {
	*batch.RecordPolicy

	numbers func(*limit.Key) []int64 // of a part before its cost
}

func newCounts(client *Client, kind, policyName string, policy *countPolicy, check func(*limit.Take) error) *counts {
	c := &counts{records: newRecords(client, kind, policyName), check: check}
	c.policy.Store(policy)
	return c
}

// newCountPolicy returns a policy whose parts begin with the same numbers for all keys.
func newCountPolicy(description limit.Description, numbers ...int64) *countPolicy {
	return &countPolicy{batch.NewRecordPolicy(description), func(*limit.Key) []int64 { return numbers }}
}

// setPolicy replaces the policy by a valid one. Denials by the old one are forgotten.
func (c *counts) setPolicy(policy *countPolicy) error {
	c.changes.Lock()
	defer c.changes.Unlock()
	old := c.policy.Load()
	if err := batch.CheckName(old.Description.Name, policy.Description.Name); err != nil {
		return fmt.Errorf("durableobject: %w", err)
	}
	policy.RecordPolicy = policy.Following(old.RecordPolicy)
	c.policy.Store(policy)
	return nil
}

// take takes tokens of key. The reply is that of a take that was sent.
func (c *counts) take(ctx context.Context, key *limit.Key, take *limit.Take) (limit.Decision, batch.RecordReply, error) {
	if err := c.check(take); err != nil {
		return limit.Decision{}, batch.RecordReply{}, fmt.Errorf("durableobject: %w", err)
	}
	p := c.policy.Load()
	return p.Take(key.Hash(c.seed), take, c.client.now, func(what batch.RecordTake) (batch.RecordReply, error) {
		return c.call(ctx, p, key, what)
	})
}

func (c *counts) call(ctx context.Context, p *countPolicy, key *limit.Key, what batch.RecordTake) (batch.RecordReply, error) {
	r, err := c.client.do(ctx, []part{c.takePart(p, key, what)})
	if err != nil {
		return batch.RecordReply{}, err
	}
	reply, err := countReply(r.parts[0], r.tick)
	reply.Sent, reply.Received = r.sent, r.received
	return reply, err
}

func (c *counts) takePart(p *countPolicy, key *limit.Key, what batch.RecordTake) part {
	numbers := append(slices.Clip(p.numbers(key)), what.Cost)
	switch l := what.Lease; {
	case what.What == batch.Settle:
		numbers = append(numbers, settlementNumbers(l)...)
	case l.ID != 0:
		numbers = append(numbers, what.Stamp, l.ID, l.Length.Microseconds())
	default:
		numbers = append(numbers, what.Stamp)
	}
	return c.newPart(key, what.What, numbers...)
}

// outcomeNoPeriod is the outcome of a reply about a quota whose process has another time than the
// object, which is the stamp.
const outcomeNoPeriod = 5

// countReply returns a reply that the Worker describes by numbers.
func countReply(numbers []int64, tick time.Duration) (batch.RecordReply, error) {
	if len(numbers) != batch.RecordNumbers {
		return batch.RecordReply{}, replyErrorf("%d numbers about a key; it must return %d", len(numbers), batch.RecordNumbers)
	}
	const maxMicros = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	for i, n := range numbers[:batch.RecordNumbers-1] {
		if isTime := i >= 2 && i <= 5; n < 0 || isTime && n > maxMicros {
			return batch.RecordReply{}, replyErrorf("%d about a key", numbers)
		}
	}
	reply := batch.NewRecordReply(numbers)
	reply.Tick = tick
	switch {
	case reply.Outcome == outcomeNoPeriod:
		return batch.RecordReply{}, fmt.Errorf("durableobject: limiter: the time of the Durable Object is %d, and the clock of this process differs by more than a period; set it", reply.Stamp)
	case reply.Outcome > outcomeNoPeriod, reply.Outcome > batch.OutcomeAllowed && reply.RetryAfter == 0 && reply.Outcome != batch.OutcomeInPenalty:
		return batch.RecordReply{}, replyErrorf("%d about a key", numbers)
	}
	return reply, nil
}

// Check returns an error if the limiter cannot do a Take.
func (c *counts) Check(take limit.Take) error { return c.check(&take) }

// Describe returns the maximum of the policy, and the time for which tokens count.
func (c *counts) Describe() []limit.Description {
	return []limit.Description{c.policy.Load().Description}
}

// RemembersDenial returns the denial of a Take if this process knows it without asking the Worker.
func (c *counts) RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool) {
	return c.policy.Load().Remembered(key.Hash(c.seed), &take, c.client.now())
}

// Reset removes what counts of key, and ends a block and a penalty. Other processes may deny the
// key for up to a second more.
func (c *counts) Reset(ctx context.Context, key limit.Key) error {
	err := c.reset(ctx, &key)
	c.invalidate(&key)
	return err
}

// Block denies key for d; after that, nothing counts.
func (c *counts) Block(ctx context.Context, key limit.Key, d time.Duration) error {
	err := c.block(ctx, &key, d)
	c.invalidate(&key)
	return err
}

// invalidate makes the next call for key ask the Worker.
func (c *counts) invalidate(key *limit.Key) {
	c.policy.Load().Invalidate(key.Hash(c.seed), c.client.now())
}

func (c *counts) jointPart(key *limit.Key, take limit.Take) (jointPart, error) {
	part, err := c.countPart(key, take)
	if err != nil {
		return nil, err
	}
	return part, nil
}

func (c *counts) countPart(key *limit.Key, take limit.Take) (*countPart, error) {
	if err := c.check(&take); err != nil {
		return nil, fmt.Errorf("durableobject: %w", err)
	}
	p := c.policy.Load()
	return &countPart{RecordPart: p.Part(key.Hash(c.seed), take), counts: c, policy: p, key: key}, nil
}

// A countPart is a request to a limiter that counts tokens.
type countPart struct {
	*batch.RecordPart

	counts    *counts
	policy    *countPolicy
	key       *limit.Key
	onPenalty func(*batch.RecordReply, limit.Decision) // may be nil
}

// part returns a take that the object denies, if the cost is never allowed.
func (p *countPart) part() part {
	what := p.What
	if p.IsNever() {
		what.Cost = p.policy.Max() + 1
	}
	return p.counts.takePart(p.policy, p.key, what)
}

func (p *countPart) decide(numbers []int64, tick time.Duration, denied bool) (limit.Decision, error) {
	reply, err := countReply(numbers, tick)
	if err != nil {
		return limit.Decision{}, err
	}
	d := p.Decide(reply)
	if reply.Outcome == batch.OutcomePenaltyStarts && !denied && p.onPenalty != nil {
		p.onPenalty(&reply, d)
	}
	return d, nil
}

func (p *countPart) learn(d *limit.Decision, allowed bool, r *reply) {
	p.Learn(d, allowed, r.sent, r.received)
}
