package enforce

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
)

// Charges say what requests of type R take, and which of them are limited: the options that packages
// ratelimit and httplimit have in common, and document, each with its type of request.
type Charges[R any] struct {
	Options

	Key        func(R) limit.Key // if nil, DefaultKey
	Cost       func(R) int64     // if nil, DefaultCost
	ChargeOnly func(R) bool      // may be nil
	Keep       func(R) int64     // may be nil
	Access     *access.List      // may be nil
	AccessKey  func(R) limit.Key // if nil, DefaultAccessKey, or without one Key

	DefaultKey, DefaultAccessKey func(R) limit.Key
	DefaultCost                  func(R) int64

	IP   func(R) netip.Addr // which Access looks up
	Text func(R) string     // names a request in an error

	Rules []Rule[R] // of LimitAll
}

// A Rule is one of the limits that a request is charged to, all or none.
type Rule[R any] struct {
	Limiter limit.Limiter
	Key     func(R) limit.Key // as in Charges
	Cost    func(R) int64     // as in Charges; the rule does not apply to a request that costs 0
}

// Limit returns the limit of a limiter. It panics if limiter is nil or an option is invalid.
func (c *Charges[R]) Limit(limiter limit.Limiter) *Limit {
	if c.Key == nil {
		c.Key = c.DefaultKey
	}
	if c.Cost == nil {
		c.Cost = c.DefaultCost
	}
	c.complete(c.Key)
	return New(limiter, c.Options)
}

// LimitAll returns the limit of rules. It panics if a rule or an option is invalid.
func (c *Charges[R]) LimitAll(rules []Rule[R]) *Limit {
	switch {
	case c.Key != nil:
		c.panicf("NewAll does not use Options.Key; set Rule.Key")
	case c.Cost != nil:
		c.panicf("NewAll does not use Options.Cost; set Rule.Cost")
	}
	c.complete(c.DefaultKey)
	c.Rules = slices.Clone(rules)
	limiters := make([]limit.Limiter, len(rules))
	for i := range c.Rules {
		rule := &c.Rules[i]
		limiters[i] = rule.Limiter
		if rule.Key == nil {
			rule.Key = c.DefaultKey
		}
		if rule.Cost == nil {
			rule.Cost = c.DefaultCost
		}
	}
	return NewAll(limiters, c.Options)
}

// complete sets what depends on other options. key is that of a request without an AccessKey.
func (c *Charges[R]) complete(key func(R) limit.Key) {
	switch {
	case c.AccessKey != nil && c.Access == nil:
		c.panicf("AccessKey is set, but Access is nil; set Access too")
	case c.AccessKey == nil && c.DefaultAccessKey != nil:
		c.AccessKey = c.DefaultAccessKey
	case c.AccessKey == nil:
		c.AccessKey = key
	}
	c.Keeps = c.Keep != nil
}

// AccessOf returns how Access treats the client of a request.
func (c *Charges[R]) AccessOf(r *R) access.Access {
	if c.Access == nil {
		return access.Limited
	}
	return c.Access.Lookup(c.AccessKey(*r), c.IP(*r))
}

// Request returns what a request takes; if its cost is 0, it is not limited. An error is one of a
// function that has returned a negative number.
func (c *Charges[R]) Request(r *R) (q Request, err error) {
	if c.Rules != nil {
		q, err = c.joint(r)
	} else {
		q.Take.Cost, err = c.NotNegative("Cost", c.Cost(*r), r)
	}
	if err != nil || q.Take.Cost == 0 {
		return q, err
	}
	q.ChargeOnly = c.ChargeOnly != nil && c.ChargeOnly(*r)
	if c.Rules != nil {
		return q, nil
	}
	q.Key = c.Key(*r)
	if c.Keep != nil && !q.ChargeOnly {
		q.Take.Keep, err = c.NotNegative("Keep", c.Keep(*r), r)
	}
	return q, err
}

// joint returns the costs of a request by the rules that apply to it.
func (c *Charges[R]) joint(r *R) (q Request, err error) {
	q.Joint = make([]limit.Request, 0, len(c.Rules))
	for _, rule := range c.Rules {
		cost, err := c.NotNegative("Cost", rule.Cost(*r), r)
		if err != nil {
			return q, err
		}
		if cost > 0 {
			q.Add(limit.Request{Limiter: rule.Limiter, Key: rule.Key(*r), Cost: cost})
		}
	}
	return q, nil
}

// NotNegative returns the result of a function for a request, or an error if it is negative.
func (c *Charges[R]) NotNegative(function string, result int64, r *R) (int64, error) {
	if result < 0 {
		return 0, fmt.Errorf("%s: %s returned %d for %s; it must not be negative", c.Package, function, result, c.Text(*r))
	}
	return result, nil
}
