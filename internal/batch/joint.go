package batch

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// A jointLimiter is one of this package, in the type of an adapter.
type jointLimiter interface {
	limit.Limiter
	base() *Limiter
}

// A part is a take whole by one limiter, about which other limiters decide too.
type part struct {
	Part

	limiter *Limiter
	policy  *policy
	hash    uint64 // of the key
	take    limit.Take
}

func (l *Limiter) base() *Limiter { return l }

// BatchesWith reports whether other is a limiter of the same adapter, on a store that decides about
// both in one step.
func (l *Limiter) BatchesWith(other limit.Limiter) bool {
	o, ok := other.(jointLimiter)
	return ok && l.store.SharesWith(o.base().store)
}

// TakeBatch takes the cost of every request, or of none, in one step of the store. It returns nil if
// the store needs several steps.
func (l *Limiter) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	parts, joint := make([]*part, len(requests)), make([]Part, len(requests))
	for i, r := range requests {
		one := take
		one.Cost = r.Cost
		p, err := r.Limiter.(jointLimiter).base().part(r.Key, one)
		if err != nil {
			return nil, err
		}
		parts[i], joint[i] = p, p.Part
	}
	if name, ok := sameName(joint); ok { // each would decide without what the other takes
		return nil, fmt.Errorf("%s: two requests charge %q; give the policies of the limiters different names", l.name, name)
	}
	replies, err := l.store.DoAll(ctx, joint)
	if errors.Is(err, ErrSplit) {
		return nil, nil //nolint:nilnil // as adapter.Batcher says
	}
	if err != nil {
		return nil, err
	}
	return decideJointly(parts, replies), nil
}

// sameName returns the name of a bucket or record that two parts have.
func sameName(parts []Part) (name string, ok bool) {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Store.Name(&p.Request.Key)
		if slices.Contains(names[:i], names[i]) {
			return names[i], true
		}
	}
	return "", false
}

func decideJointly(parts []*part, replies []Reply) []limit.Decision {
	decisions, denied := make([]limit.Decision, len(parts)), false
	for i, p := range parts {
		decisions[i] = p.decide(&replies[i], denied)
		denied = denied || !decisions[i].Allowed
	}
	for i, p := range parts {
		p.learn(&decisions[i], !denied, &replies[i])
		if denied {
			decisions[i].Receipt = limit.Receipt{}
		}
	}
	return decisions
}

// part returns a take of key as a part of a joint one.
func (l *Limiter) part(key limit.Key, take limit.Take) (*part, error) {
	if err := l.validate(take); err != nil {
		return nil, err
	}
	p := &part{Part{Store: l.store}, l, l.current(), key.Hash(l.seed), take}
	if b := p.policy.bucket; b != nil {
		p.Request = p.policy.bucketRequest(key, &take, b.Taking(&take))
		p.Request.Never = b.CostUnits(take.Cost) > b.Full()
	} else {
		r := p.policy.record
		p.Request = p.policy.recordRequest(key, &take, r.taking(&take), l.store)
		p.Request.Never = take.Cost > r.Max()
	}
	return p, nil
}

// decide returns the Decision of the limiter alone. denied reports whether a part before this one has
// denied. The reply describes the record before, if the joint take is denied.
func (p *part) decide(reply *Reply, denied bool) limit.Decision {
	if p.policy.bucket != nil {
		return p.Request.Bucket.Lease.Complete(p.policy.bucket.Decide(&p.take, reply.State))
	}
	d := p.Request.Record.Lease.Complete(p.policy.record.decide(&reply.Record, &p.take))
	if reply.Record.Outcome == OutcomePenaltyStarts && !denied {
		p.limiter.penalize(p.policy, p.Request.Key, p.take.Cost, &reply.Record, d)
	}
	return d
}

// learn remembers what the joint take has left of the bucket or the record.
func (p *part) learn(d *limit.Decision, allowed bool, reply *Reply) {
	b := p.policy.bucket
	if b == nil {
		p.policy.record.learn(p.hash, &p.take, d, &reply.Record, allowed)
		return
	}
	after, costUnits := reply.State, b.CostUnits(p.take.Cost)
	if allowed {
		after.Units -= costUnits
	}
	b.denials.learn(p.hash, after, costUnits, reply.Sent, reply.Received)
}
