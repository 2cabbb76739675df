package postgres

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A jointPart is a request to one limiter of a call to several.
type jointPart interface {
	// request returns the call of the part.
	request() limitCall
	// decide returns the Decision that follows from the reply. denied reports whether a part before
	// this one has denied.
	decide(reply *limitReply, denied bool) (limit.Decision, error)
	// learn remembers what the call has left.
	learn(d *limit.Decision, allowed bool, reply *limitReply)
}

// A jointLimiter can be part of a call to several limiters.
type jointLimiter interface {
	limit.Limiter
	store() *Limits
	part(key *limit.Key, take limit.Take) (jointPart, error)
}

// batchesWith reports whether two limiters are in one schema.
func batchesWith(one jointLimiter, other limit.Limiter) bool {
	o, ok := other.(jointLimiter)
	return ok && one.store().pool == o.store().pool && one.store().schema == o.store().schema
}

// takeJointly takes the cost of every request, or of none, in one round trip. If a denial is
// remembered, it makes none.
func takeJointly(ctx context.Context, l *Limits, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	parts, err := jointParts(requests, take)
	if err != nil {
		return nil, err
	}
	if decisions := limit.RememberedDenials(requests, take.MaxWait); decisions != nil {
		return decisions, nil
	}
	calls, err := jointCalls(parts)
	if err != nil {
		return nil, err
	}
	replies, err := l.doAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	decisions, denied, err := decideJointly(parts, replies)
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		p.learn(&decisions[i], !denied, &replies[i])
	}
	return decisions, nil
}

func jointParts(requests []limit.Request, take limit.Take) ([]jointPart, error) {
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
	return parts, nil
}

func jointCalls(parts []jointPart) ([]limitCall, error) {
	calls, seen := make([]limitCall, len(parts)), map[string]bool{}
	for i, p := range parts {
		calls[i] = p.request()
		name := calls[i].key
		if seen[name] { // each would decide without what the other takes
			return nil, fmt.Errorf("postgres: two requests charge %q; give the policies of the limiters different names", name)
		}
		seen[name] = true
	}
	return calls, nil
}

// decideJointly returns the Decision of each part. Without an error, denied reports whether one
// denies.
func decideJointly(parts []jointPart, replies []limitReply) (decisions []limit.Decision, denied bool, err error) {
	decisions = make([]limit.Decision, len(parts))
	for i, p := range parts {
		if decisions[i], err = p.decide(&replies[i], denied); err != nil {
			return nil, false, err
		}
		denied = denied || !decisions[i].Allowed
	}
	for i := range decisions {
		if denied {
			decisions[i].Receipt = limit.Receipt{}
		}
	}
	return decisions, denied, nil
}

func (b *Limiter) store() *Limits { return b.limits }

// BucketPrefix returns how the names of all buckets begin in the store: limiters with an equal one share them.
func (b *Limiter) BucketPrefix() string { return b.keys.prefix }

// BatchesWith reports whether other is a limiter of this package with the same pool and schema.
func (b *Limiter) BatchesWith(other limit.Limiter) bool { return batchesWith(b, other) }

// TakeBatch takes the cost of every request, or of none, in one round trip. If a denial is
// remembered, it makes none.
func (b *Limiter) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	return takeJointly(ctx, b.limits, requests, take)
}

func (b *Limiter) part(key *limit.Key, take limit.Take) (jointPart, error) {
	return b.partBy(key, take, b.policy.Load())
}

func (b *Limiter) partBy(key *limit.Key, take limit.Take, p *batch.Policy) (jointPart, error) {
	if err := take.Validate(); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &limitBucketPart{p.Part(key.Hash(b.seed), take), b, p, key}, nil
}

// A limitBucketPart is a request to a [Limiter].
type limitBucketPart struct {
	*batch.BucketPart

	limiter *Limiter
	policy  *batch.Policy
	key     *limit.Key
}

func (p *limitBucketPart) request() limitCall {
	args := bucketArgs(p.policy, limit.Whole, p.What)
	return p.limiter.keys.call(p.key, withNever(args, p.IsNever()))
}

func withNever(args limitArgs, isNever bool) limitArgs {
	if isNever {
		args[argNever] = 1
	}
	return args
}

func (p *limitBucketPart) decide(reply *limitReply, _ bool) (limit.Decision, error) {
	return p.Decide(bucketState(reply)), nil
}

func (p *limitBucketPart) learn(_ *limit.Decision, allowed bool, reply *limitReply) {
	p.Learn(allowed, reply.sent, reply.received)
}

func (r *limitRecords) store() *Limits { return r.limits }

// TakeBatch takes the cost of every request, or of none, in one round trip. If a denial is
// remembered, it makes none.
func (r *limitRecords) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	return takeJointly(ctx, r.limits, requests, take)
}

// BucketPrefix returns how the names of all records begin in the store: limiters with an equal one share them.
func (r *limitRecords) BucketPrefix() string { return r.keys.prefix }

func (r *limitRecords) part(key *limit.Key, take limit.Take) (jointPart, error) {
	return r.partBy(key, take, r.policy.Load())
}

func (r *limitRecords) partBy(key *limit.Key, take limit.Take, p *limitRecordPolicy) (*limitRecordPart, error) {
	if err := r.check(&take); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &limitRecordPart{RecordPart: p.Part(key.Hash(r.seed), take), records: r, policy: p, key: key}, nil
}

// BatchesWith reports whether other is a limiter of this package with the same pool and schema.
func (q *Quota) BatchesWith(other limit.Limiter) bool { return batchesWith(q, other) }

// BatchesWith reports whether other is a limiter of this package with the same pool and schema.
func (w *SlidingLog) BatchesWith(other limit.Limiter) bool { return batchesWith(w, other) }

// BatchesWith reports whether other is a limiter of this package with the same pool and schema.
func (w *SlidingCounter) BatchesWith(other limit.Limiter) bool { return batchesWith(w, other) }

// BatchesWith reports whether other is a limiter of this package with the same pool and schema.
func (c *Cooldown) BatchesWith(other limit.Limiter) bool { return batchesWith(c, other) }

func (c *Cooldown) part(key *limit.Key, take limit.Take) (jointPart, error) {
	return c.partBy(key, take, c.limitRecords.policy.Load())
}

func (c *Cooldown) partBy(key *limit.Key, take limit.Take, p *limitRecordPolicy) (*limitRecordPart, error) {
	part, err := c.limitRecords.partBy(key, take, p)
	if err == nil && c.onPenalty != nil {
		part.onPenalty = func(reply *batch.RecordReply, d limit.Decision) { c.penalize(*key, take.Cost, reply, d) }
	}
	return part, err
}

// A limitRecordPart is a request to a limiter with records.
type limitRecordPart struct {
	*batch.RecordPart

	records   *limitRecords
	policy    *limitRecordPolicy
	key       *limit.Key
	onPenalty func(*batch.RecordReply, limit.Decision) // may be nil
}

func (p *limitRecordPart) request() limitCall {
	call := p.records.call(p.key, p.policy, p.What)
	call.args = withNever(call.args, p.IsNever())
	return call
}

func (p *limitRecordPart) decide(numbers *limitReply, denied bool) (limit.Decision, error) {
	reply, err := recordReply(numbers)
	if err != nil {
		return limit.Decision{}, err
	}
	d := p.Decide(reply)
	if reply.Outcome == batch.OutcomePenaltyStarts && !denied && p.onPenalty != nil {
		p.onPenalty(&reply, d)
	}
	return d, nil
}

func (p *limitRecordPart) learn(d *limit.Decision, allowed bool, reply *limitReply) {
	p.Learn(d, allowed, reply.sent, reply.received)
}
