package inspect

import (
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/router"
)

// This file changes policies. Each node returns to the policy before after some minutes, unless it
// receives the confirmation: so a mistake that locks operators out, or a node that fails, is
// undone.

// bounds of the time that a policy waits for its confirmation, and that a preview lasts.
const (
	maxPolicyMinutes  = 60
	maxPreviewMinutes = 5
	maxPreviewKeys    = 100_000
)

// A bucketSetter is a token bucket whose policy can change.
type bucketSetter interface {
	limit.PolicySetter[limit.Policy]
	adapter.Describer
}

// bucket returns the limiter if it is a token bucket whose policy can change.
func (l *inspectedLimit) bucket() (bucketSetter, bool) {
	b, ok := l.Limiter.(bucketSetter)
	return b, ok
}

// policy returns the current policy.
func (l *inspectedLimit) policy() (b bucketSetter, p limit.Policy, err error) {
	b, ok := l.bucket()
	if ok {
		if all := b.Describe(); len(all) == 1 {
			p, ok = policyOf(all[0])
		}
	}
	if !ok {
		return nil, p, errors.Errorf(errors.Unimplemented, "the limiter of %q is no token bucket whose policy can change", l.Name)
	}
	return b, p, nil
}

// parsePolicy parses a policy for the limit. Its name may be left out.
func parsePolicy(text string, before limit.Policy) (limit.Policy, error) {
	p, err := limit.ParsePolicy(text)
	if err != nil {
		return p, errors.Errorf(errors.InvalidArgument, "%v", err)
	}
	if p.Name == "" {
		p.Name = before.Name
	}
	if p.Name != before.Name {
		return p, errors.Errorf(errors.InvalidArgument, "the policy has the name %q; it must be %q", p.Name, before.Name)
	}
	return p, nil
}

// An applied policy waits for its confirmation.
type applied struct {
	id             string
	policy, before limit.Policy
	inEffect       limit.Policy // policy, as the limiter describes it
	until          time.Time
	timer          *time.Timer
}

type appliedState struct {
	ID     string    `json:"id"`
	Policy string    `json:"policy"`
	Before string    `json:"before"`
	Until  time.Time `json:"until"` // when the node returns to Before
}

// A preview counts what two policies deny of the messages that this node receives, with buckets
// that are full at its start.
type preview struct {
	limit         *inspectedLimit
	policy        limit.Policy
	now, proposed *memory.Limiter
	began, until  time.Time
	timer         *time.Timer
	counts        *previewCounts
}

// previewCounts are what a preview has counted in each step since it began.
type previewCounts [maxPreviewMinutes * time.Minute / sampleStep]struct{ messages, deniedNow, deniedProposed atomic.Int64 }

// A previewCount is what both policies deny of some messages.
type previewCount struct {
	Messages       int64 `json:"messages"`
	DeniedNow      int64 `json:"deniedNow"`      // by the policy in effect
	DeniedProposed int64 `json:"deniedProposed"` // by the policy of the preview
}

type previewState struct {
	Policy string    `json:"policy"`
	Until  time.Time `json:"until"`
	previewCount

	StepMs int64          `json:"stepMs"`
	Series []previewCount `json:"series"` // per step, until the last one with messages
}

// state returns what the page shows of a preview.
func (p *preview) state() *previewState {
	s := &previewState{Policy: p.policy.String(), Until: p.until, StepMs: sampleStep.Milliseconds(), Series: []previewCount{}}
	for n := range p.counts {
		c := previewCount{p.counts[n].messages.Load(), p.counts[n].deniedNow.Load(), p.counts[n].deniedProposed.Load()}
		if c.Messages == 0 {
			continue
		}
		s.Series = append(s.Series, make([]previewCount, n-len(s.Series))...)
		s.Series = append(s.Series, c)
		s.Messages, s.DeniedNow, s.DeniedProposed = s.Messages+c.Messages, s.DeniedNow+c.DeniedNow, s.DeniedProposed+c.DeniedProposed
	}
	return s
}

// count decides about a message by both policies. A panic of Limit.Key or Limit.Cost does not end the
// message.
func (p *preview) count(ctx context.Context, in router.IngressContext) {
	defer func() { _ = recover() }() // the limit itself panics, too
	cost := p.limit.cost(in)
	if cost <= 0 {
		return
	}
	key := p.limit.Key(in)
	counts := &p.counts[min(max(in.ReceivedAt.Sub(p.began)/sampleStep, 0), time.Duration(len(p.counts)-1))]
	counts.messages.Add(1)
	if d, err := limit.Consume(ctx, p.now, key, cost); err == nil && !d.Allowed {
		counts.deniedNow.Add(1)
	}
	if d, err := limit.Consume(ctx, p.proposed, key, cost); err == nil && !d.Allowed {
		counts.deniedProposed.Add(1)
	}
}

// states returns what the pages show of changes.
func (l *inspectedLimit) states() (a *appliedState, p *previewState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.applied != nil {
		a = &appliedState{l.applied.id, l.applied.policy.String(), l.applied.before.String(), l.applied.until}
	}
	if l.preview != nil {
		p = l.preview.state()
	}
	return a, p
}

// A proposal is a policy to preview or to apply.
type proposal struct {
	Limit   string `json:"limit"`
	Policy  string `json:"policy"` // in the syntax of limit.ParsePolicy
	Minutes int    `json:"minutes"`
}

// An appliedTarget names a policy that was applied.
type appliedTarget struct {
	Limit string `json:"limit"`
	ID    string `json:"id"`
}

// A policyChange is one step of changing a policy, between nodes.
type policyChange struct {
	Step    string `json:"step,omitempty"` // "preview", "apply", "confirm" or "return"
	ID      string `json:"id,omitempty"`   // of an applied policy
	Limit   string `json:"limit"`
	Policy  string `json:"policy,omitempty"`  // in the syntax of limit.ParsePolicy
	Minutes int    `json:"minutes,omitempty"` // of a preview or an applied policy
}

// The steps.
const (
	stepPreview = "preview"
	stepApply   = "apply"
	stepConfirm = "confirm"
	stepReturn  = "return"
)

// localPolicy makes a step on this node, and reports whether there was something to confirm or to
// return from.
func (i *Inspector) localPolicy(_ context.Context, c policyChange) (bool, error) {
	l, err := i.limit(c.Limit)
	if err != nil {
		return false, err
	}
	switch c.Step {
	case stepPreview:
		return true, i.startPreview(l, c)
	case stepApply:
		return true, l.apply(c)
	case stepConfirm:
		return l.end(c.ID, false), nil
	case stepReturn:
		return l.end(c.ID, true), nil
	}
	return false, errUnknownQuestion
}

// apply changes the policy for some minutes.
func (l *inspectedLimit) apply(c policyChange) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.applied != nil {
		return errors.Errorf(errors.FailedPrecondition, "the policy %q waits for its confirmation; confirm it or return first", l.applied.policy)
	}
	b, before, err := l.policy()
	if err != nil {
		return err
	}
	policy, err := parsePolicy(c.Policy, before)
	if err != nil {
		return err
	}
	if err := b.SetPolicy(policy); err != nil {
		return errors.Errorf(errors.InvalidArgument, "%v", err)
	}
	_, inEffect, err := l.policy()
	if err != nil {
		return err
	}
	d := time.Duration(c.Minutes) * time.Minute
	l.applied = &applied{id: c.ID, policy: policy, before: before, inEffect: inEffect, until: time.Now().Add(d)}
	l.applied.timer = time.AfterFunc(d, func() { l.end(c.ID, true) })
	return nil
}

// end ends the wait for a confirmation, and returns to the policy before or keeps the new one. A policy
// that the application has set meanwhile, from a file for example, stays. It reports whether the policy
// with the ID has waited.
func (l *inspectedLimit) end(id string, returns bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.applied
	if a == nil || a.id != id {
		return false
	}
	l.applied = nil
	a.timer.Stop()
	if b, now, err := l.policy(); err == nil && returns && now == a.inEffect {
		_ = b.SetPolicy(a.before) // it was valid before
	}
	return true
}

// startPreview replaces the preview of a limit.
func (i *Inspector) startPreview(l *inspectedLimit, c policyChange) error {
	_, before, err := l.policy()
	if err != nil {
		return err
	}
	if l.Key == nil {
		return errors.Errorf(errors.Unimplemented, "the limit %q has no Key in inspect.Options.Limits", l.Name)
	}
	policy, err := parsePolicy(c.Policy, before)
	if err != nil {
		return err
	}
	d := time.Duration(c.Minutes) * time.Minute
	now := time.Now()
	p := &preview{
		limit: l, policy: policy, now: memory.NewLimiterMaxKeys(before, maxPreviewKeys), proposed: memory.NewLimiterMaxKeys(policy, maxPreviewKeys),
		began: now, until: now.Add(d), counts: &previewCounts{},
	}
	l.mu.Lock()
	last := l.preview
	l.preview = p
	p.timer = time.AfterFunc(d, func() { i.endPreview(p) })
	l.mu.Unlock()
	if last != nil {
		last.timer.Stop()
	}
	return i.changeRecorders(func(r recorders) (recorders, error) {
		r.previews = append(slices.DeleteFunc(r.previews, func(q *preview) bool { return q == last }), p)
		return r, nil
	})
}

// endPreview stops counting. The numbers stay.
func (i *Inspector) endPreview(p *preview) {
	_ = i.changeRecorders(func(r recorders) (recorders, error) { // never fails
		r.previews = slices.DeleteFunc(r.previews, func(q *preview) bool { return q == p })
		return r, nil
	})
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	if p.limit.preview == p {
		p.limit.preview = &preview{limit: p.limit, policy: p.policy, until: p.until, timer: p.timer, counts: p.counts} // without the buckets
	}
}

func (i *Inspector) previewPolicy(ctx context.Context, p proposal) (any, error) {
	return i.beginPolicy(ctx, p, stepPreview, maxPreviewMinutes)
}

func (i *Inspector) applyPolicy(ctx context.Context, p proposal) (any, error) {
	return i.beginPolicy(ctx, p, stepApply, maxPolicyMinutes)
}

// beginPolicy previews or applies a policy on all nodes. If this node cannot, no other does.
func (i *Inspector) beginPolicy(ctx context.Context, p proposal, step string, maxMinutes int) (any, error) {
	if p.Minutes < 1 || p.Minutes > maxMinutes {
		return nil, errors.Errorf(errors.InvalidArgument, "minutes is %d; it must be from 1 to %d", p.Minutes, maxMinutes)
	}
	c := policyChange{Step: step, ID: rand.Text(), Limit: p.Limit, Policy: p.Policy, Minutes: p.Minutes}
	_, states, err := gather[bool](ctx, i, askPolicy, c)
	return struct {
		changed

		ID string `json:"id"`
	}{changed{states}, c.ID}, err
}

func (i *Inspector) confirmPolicy(ctx context.Context, a appliedTarget) (any, error) {
	return i.endPolicy(ctx, a, stepConfirm)
}

func (i *Inspector) returnPolicy(ctx context.Context, a appliedTarget) (any, error) {
	return i.endPolicy(ctx, a, stepReturn)
}

func (i *Inspector) endPolicy(ctx context.Context, a appliedTarget, step string) (any, error) {
	answers, states, err := gather[bool](ctx, i, askPolicy, policyChange{Step: step, ID: a.ID, Limit: a.Limit})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(answers, func(a nodeAnswer[bool]) bool { return a.Result }) {
		return nil, errors.Errorf(errors.NotFound, "no node that has answered has this policy; it has returned to the one before, or was confirmed")
	}
	return changed{states}, nil
}
