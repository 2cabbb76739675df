package durableobject

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// A jointLimiter can be part of a call to several limiters.
type jointLimiter interface {
	limit.Limiter
	clientOf() *Client
	jointPart(key *limit.Key, take limit.Take) (jointPart, error)
}

// A jointPart is a request to one limiter of a call to several.
type jointPart interface {
	// part returns what the Worker does.
	part() part
	// decide returns the Decision that follows from the numbers of a reply. denied reports whether
	// a part before this one has denied.
	decide(numbers []int64, tick time.Duration, denied bool) (limit.Decision, error)
	// learn remembers what the call has left.
	learn(d *limit.Decision, allowed bool, r *reply)
}

func (r *records) clientOf() *Client { return r.client }

// BucketPrefix returns how the names of all records begin in the store: limiters with an equal one share them.
func (r *records) BucketPrefix() string { return r.kind + ":" + r.name }

// BatchesWith reports whether other is a limiter of this package with the same client.
func (r *records) BatchesWith(other limit.Limiter) bool {
	o, ok := other.(jointLimiter)
	return ok && o.clientOf() == r.client
}

// TakeBatch takes the cost of every request, or of none, in one request to the Worker: in one step
// if the keys are in one Durable Object, as equal keys always are. Otherwise the limiters decide
// one after the other. If a denial is remembered, it sends nothing.
func (r *records) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	parts, err := jointParts(requests, take)
	if err != nil {
		return nil, err
	}
	if decisions := limit.RememberedDenials(requests, take.MaxWait); decisions != nil {
		return decisions, nil
	}
	if len(parts) > maxParts {
		return limit.TakeEach(ctx, requests, take)
	}
	sent := make([]part, len(parts))
	for i, p := range parts {
		sent[i] = p.part()
		if slices.ContainsFunc(sent[:i], sent[i].sameRecord) { // each would decide without what the other takes
			return nil, fmt.Errorf("durableobject: two requests charge the %s %q of the key %q; give the policies of the limiters different names",
				sent[i].kind, sent[i].name, sent[i].key)
		}
	}
	reply, err := r.client.do(ctx, sent)
	if errors.Is(err, errSplit) {
		return limit.TakeEach(ctx, requests, take)
	}
	if err != nil {
		return nil, err
	}
	return decideJointly(parts, &reply)
}

func jointParts(requests []limit.Request, take limit.Take) ([]jointPart, error) {
	parts := make([]jointPart, len(requests))
	for i := range requests {
		r := &requests[i]
		one := take
		one.Cost = r.Cost
		part, err := r.Limiter.(jointLimiter).jointPart(&r.Key, one)
		if err != nil {
			return nil, err
		}
		parts[i] = part
	}
	return parts, nil
}

func decideJointly(parts []jointPart, r *reply) ([]limit.Decision, error) {
	decisions, denied := make([]limit.Decision, len(parts)), false
	for i, p := range parts {
		d, err := p.decide(r.parts[i], r.tick, denied)
		if err != nil {
			return nil, err
		}
		decisions[i], denied = d, denied || !d.Allowed
	}
	for i, p := range parts {
		p.learn(&decisions[i], !denied, r)
		if denied {
			decisions[i].Receipt = limit.Receipt{}
		}
	}
	return decisions, nil
}

func (p part) sameRecord(other part) bool {
	return p.kind == other.kind && p.name == other.name && p.key == other.key
}

func (l *Limiter) jointPart(key *limit.Key, take limit.Take) (jointPart, error) {
	if err := take.Validate(); err != nil {
		return nil, fmt.Errorf("durableobject: %w", err)
	}
	p := l.policy.Load()
	return &bucketPart{p.Part(key.Hash(l.seed), take), l, p, key}, nil
}

// A bucketPart is a request to a [Limiter].
type bucketPart struct {
	*batch.BucketPart

	limiter *Limiter
	policy  *bucketPolicy
	key     *limit.Key
}

// part returns a take that is denied, if the cost is never allowed.
func (p *bucketPart) part() part {
	what := p.What
	if p.IsNever() {
		what = batch.Take{Units: 1, Lowest: p.policy.Full(), Divisor: 1}
	}
	return p.limiter.takePart(p.policy, p.key, what)
}

func (p *bucketPart) decide(numbers []int64, tick time.Duration, _ bool) (limit.Decision, error) {
	state, err := p.policy.state(numbers, tick)
	if err != nil {
		return limit.Decision{}, err
	}
	return p.Decide(state), nil
}

func (p *bucketPart) learn(_ *limit.Decision, allowed bool, r *reply) {
	p.Learn(allowed, r.sent, r.received)
}
