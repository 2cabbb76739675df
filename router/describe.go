package router

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/announced"
	"github.com/penstock-go/penstock/internal/rules"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/router/description"
)

// Describe returns the contract of the router: the messages that clients send and receive, and the
// topics. What the routes do not say is declared with [DeclareMessage], [DeclareCall] and
// TopicOptions.Messages. The messages of the protocol itself are not part of it. Describe may be
// called before and while the router serves.
func (r *Router) Describe() description.Contract {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	d := r.describeLocked()
	d.Limits = r.staticLimitsLocked()
	return d
}

// DescribeMessages returns what Describe returns, without the Limits: it calls no function of the
// application.
func (r *Router) DescribeMessages() description.Contract {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	return r.describeLocked()
}

// describeLocked describes all but the limits. It needs routesMu.
func (r *Router) describeLocked() description.Contract {
	d := description.Contract{
		Errors:     slices.Sorted(slices.Values(errors.Codes())),
		CloseCodes: closeCodes(),
		MaxBytes:   map[string]int64{"": r.opts.Limits.MaxMessageBytes},
	}
	for f := envelope.JSON + 1; f < r.formats.End(); f++ {
		d.Codecs = append(d.Codecs, r.formats.Subprotocol(f))
	}
	for _, name := range slices.Sorted(maps.Keys(r.routes)) {
		rt := r.routes[name]
		if rt.protocol {
			continue
		}
		d.Routes = append(d.Routes, rt.describe())
		if rt.maxBytes != r.opts.Limits.MaxMessageBytes {
			d.MaxBytes[name] = rt.maxBytes
		}
	}
	sent, calls := r.declared.List()
	for _, m := range sent {
		d.Sent = append(d.Sent, description.Message{Type: m.Name, Go: m.Type})
	}
	for _, c := range calls {
		d.Calls = append(d.Calls, description.Call{Message: description.Message{Type: c.Name, Go: c.Type}, Reply: description.Message{Type: c.Reply.Name, Go: c.Reply.Type}})
	}
	for p, o := range r.topicOptions {
		d.Topics = append(d.Topics, o.describe(p))
	}
	slices.SortFunc(d.Topics, func(a, b description.Topic) int { return strings.Compare(a.Pattern, b.Pattern) })
	return d
}

func (rt *Route) describe() description.Route {
	kind := description.KindEvent
	switch {
	case rt.stream:
		kind = description.KindStream
	case rt.rpc:
		kind = description.KindCall
	}
	c := &rt.contract
	var failures []description.Error
	for _, code := range slices.Sorted(maps.Keys(c.errors)) {
		failures = append(failures, description.Error{Code: code, Details: c.errors[code]})
	}
	return description.Route{
		Message:     description.Message{Type: rt.name, Go: c.request},
		Kind:        kind,
		Description: c.text,
		Reply:       description.Message{Type: c.replyType, Go: c.reply},
		Item:        c.item,
		Progress:    c.progress,
		Errors:      failures,
		Timeout:     rt.timeout,
	}
}

func (d declaredTopic) describe(p *topic.Pattern) description.Topic {
	t := description.Topic{Pattern: p.Text, Subscribe: d.authorize != nil, History: p.Retention, Presence: p.Presence, Hidden: d.authorizeHidden != nil}
	for _, m := range d.messages {
		name := mustBeMessage(reflect.TypeOf(m), p.Position)
		t.Messages = append(t.Messages, name)
	}
	slices.Sort(t.Messages)
	t.Messages = slices.Compact(t.Messages)
	return t
}

// closeCodes returns the table of the protocol, section 5, without the codes that no close frame has.
func closeCodes() (codes []description.CloseCode) {
	for _, rule := range rules.CloseRules {
		for _, code := range rule.Codes {
			if !rule.Unsent {
				codes = append(codes, description.CloseCode{Code: code, Reason: rule.Cause})
			}
		}
	}
	slices.SortFunc(codes, func(a, b description.CloseCode) int { return a.Code - b.Code })
	return codes
}

// staticLimitsLocked returns the announced limits that two clients without anything in common
// share. It needs routesMu.
func (r *Router) staticLimitsLocked() []description.Limit {
	var described []description.Limit
	one, other := r.probeLimits("1", netip.AddrFrom4([4]byte{192, 0, 2, 1})), r.probeLimits("2", netip.AddrFrom4([4]byte{203, 0, 113, 1}))
	for _, l := range one {
		same := func(o *protocol.Limit) bool { return reflect.DeepEqual(l, o) }
		if slices.ContainsFunc(other, same) {
			described = append(described, describeLimit(l))
		}
	}
	slices.SortStableFunc(described, func(a, b description.Limit) int { return strings.Compare(a.Name, b.Name) })
	return described
}

// probeLimits returns what Options.AnnounceLimits announces to an invented client, or nil.
func (r *Router) probeLimits(client string, ip netip.Addr) (limits []*protocol.Limit) {
	announce := r.opts.AnnounceLimits
	if announce == nil {
		return nil
	}
	r.hooks.Call(context.Background(), "AnnounceLimits", func() {
		var groups announced.Limits
		sizes := r.sizesByType()
		for _, typ := range slices.Sorted(maps.Keys(sizes)) {
			if protocol.IsReserved(typ) {
				continue
			}
			addLimits(&groups, typ, announce(IngressContext{
				Type: typ, IP: ip, Identity: Identity{TenantID: "tenant" + client, UserID: "user" + client}, Size: sizes[typ], ReceivedAt: time.Now(),
			}))
		}
		limits = groups.All()
	})
	return limits
}

func describeLimit(l *protocol.Limit) description.Limit {
	d := description.Limit{Name: l.Name, Capacity: l.Capacity, Refill: l.Refill, Per: time.Duration(l.RefillMs) * time.Millisecond, Scope: l.Scope}
	for _, bucket := range l.Buckets {
		b := description.Bucket{Costs: map[string]int64{}, Keep: maps.Clone(bucket.Keep)}
		for typ, cost := range bucket.Costs {
			b.Costs[typ] = -1
			if cost != nil {
				b.Costs[typ] = *cost
			}
		}
		d.Buckets = append(d.Buckets, b)
	}
	return d
}
