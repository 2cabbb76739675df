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
	"github.com/penstock-go/penstock/internal/closecodes"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
)

// A Description is what both ends of a connection must agree on. [Router.Describe] returns it; package
// contract generates JSON Schema, AsyncAPI and TypeScript from it. All lists are sorted.
type Description struct {
	Routes []DescribedRoute   // messages that clients send, by type
	Sent   []DescribedMessage // messages that clients receive: of DeclareMessage and of TopicOptions.Messages
	Calls  []DescribedCall    // calls of the server, of DeclareCall
	Topics []DescribedTopic   // by pattern
	Limits []DescribedLimit   // see DescribedLimit

	Errors     []errors.Code    // codes with which any message may be answered
	CloseCodes []CloseCode      // with which the router closes connections
	Codecs     []string         // subprotocols of Options.Codecs, in the order of preference
	MaxBytes   map[string]int64 // Route.MaxMessageBytes of the types that differ; "" has the default
}

// A DescribedMessage is a message type. The zero DescribedMessage means that there is none.
type DescribedMessage struct {
	Type string       // as MessageType returns it
	Go   reflect.Type // the type that was registered
}

// A DescribedRoute is a message type that clients send.
type DescribedRoute struct {
	DescribedMessage

	Kind        RouteKind
	Description string           // of RouteDoc.Description
	Reply       DescribedMessage // of a call, and of a stream that declares one
	Item        reflect.Type     // of a stream; otherwise nil
	Progress    reflect.Type     // of a call that declares updates; otherwise nil
	Errors      []DescribedError // of RouteDoc.Errors and RouteDoc.ErrorDetails, by code
	Timeout     time.Duration    // of a call or stream; 0 means none
}

// A DescribedError is a code with which a message may be answered.
type DescribedError struct {
	Code    errors.Code
	Details reflect.Type // of Error.Details; nil if they are not declared
}

// A RouteKind says how the server answers a message.
type RouteKind string

// The kinds of routes.
const (
	KindEvent  RouteKind = "event"  // not at all; see On
	KindCall   RouteKind = "call"   // with one reply or error; see RPC
	KindStream RouteKind = "stream" // with items, and then as a call; see Stream
)

// A DescribedCall is a call of the server and the reply with which a client answers it.
type DescribedCall struct {
	DescribedMessage

	Reply DescribedMessage
}

// A DescribedTopic is a pattern of topics.
type DescribedTopic struct {
	Pattern   string
	Messages  []string // types of TopicOptions.Messages; empty if they are not declared
	Subscribe bool     // whether clients can subscribe: TopicOptions.Authorize is set
	History   History
	Presence  bool
}

// A DescribedLimit is a rate limit that is the same for all clients. Options.AnnounceLimits decides
// which limits are public: Describe calls it with an empty ConnID for two invented users of different
// tenants and addresses, and leaves out what differs between them.
type DescribedLimit struct {
	Name     string
	Capacity int64         // tokens in a full bucket
	Refill   int64         // tokens that return every Per
	Per      time.Duration // whole milliseconds
	Scope    LimitScope
	Buckets  []DescribedBucket
}

// A DescribedBucket is one bucket of a limit, with the types that take tokens from it.
type DescribedBucket struct {
	Costs map[string]int64 // by type; negative if the cost depends on the message
	Keep  map[string]int64 // tokens that a message must leave, by type; 0 is left out
}

// A CloseCode is a status with which the router closes connections; see the protocol, section 5.
type CloseCode struct {
	Code   int
	Reason string
}

// Describe returns the contract of the router: the messages that clients send and receive, and the
// topics. What the routes do not say is declared with [DeclareMessage], [DeclareCall] and
// TopicOptions.Messages. The messages of the protocol itself are not part of it. Describe may be
// called before and while the router serves.
func (r *Router) Describe() Description {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	d := r.describeLocked()
	d.Limits = r.staticLimitsLocked()
	return d
}

// DescribeMessages returns what Describe returns, without the Limits: it calls no function of the
// application.
func (r *Router) DescribeMessages() Description {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	return r.describeLocked()
}

// describeLocked describes all but the limits. It needs routesMu.
func (r *Router) describeLocked() Description {
	d := Description{
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
		d.Sent = append(d.Sent, DescribedMessage{m.Name, m.Type})
	}
	for _, c := range calls {
		d.Calls = append(d.Calls, DescribedCall{DescribedMessage{c.Name, c.Type}, DescribedMessage{c.Reply.Name, c.Reply.Type}})
	}
	for p, o := range r.topicOptions {
		d.Topics = append(d.Topics, o.describe(p))
	}
	slices.SortFunc(d.Topics, func(a, b DescribedTopic) int { return strings.Compare(a.Pattern, b.Pattern) })
	return d
}

func (rt *Route) describe() DescribedRoute {
	kind := KindEvent
	switch {
	case rt.stream:
		kind = KindStream
	case rt.rpc:
		kind = KindCall
	}
	c := &rt.contract
	var failures []DescribedError
	for _, code := range slices.Sorted(maps.Keys(c.errors)) {
		failures = append(failures, DescribedError{code, c.errors[code]})
	}
	return DescribedRoute{
		DescribedMessage: DescribedMessage{rt.name, c.request},
		Kind:             kind,
		Description:      c.text,
		Reply:            DescribedMessage{c.replyType, c.reply},
		Item:             c.item,
		Progress:         c.progress,
		Errors:           failures,
		Timeout:          rt.timeout,
	}
}

func (o TopicOptions) describe(p *topic.Pattern) DescribedTopic {
	t := DescribedTopic{Pattern: p.Text, Subscribe: o.Authorize != nil, History: o.History, Presence: o.Presence}
	for _, m := range o.Messages {
		name := mustBeMessage(reflect.TypeOf(m), p.Position)
		t.Messages = append(t.Messages, name)
	}
	slices.Sort(t.Messages)
	t.Messages = slices.Compact(t.Messages)
	return t
}

// closeCodes returns the table of the protocol, section 5, without the codes that no close frame has.
func closeCodes() (codes []CloseCode) {
	for _, rule := range closecodes.Rules {
		for _, code := range rule.Codes {
			if !rule.Unsent {
				codes = append(codes, CloseCode{code, rule.Cause})
			}
		}
	}
	slices.SortFunc(codes, func(a, b CloseCode) int { return a.Code - b.Code })
	return codes
}

// staticLimitsLocked returns the announced limits that two clients without anything in common
// share. It needs routesMu.
func (r *Router) staticLimitsLocked() []DescribedLimit {
	var described []DescribedLimit
	one, other := r.probeLimits("1", netip.AddrFrom4([4]byte{192, 0, 2, 1})), r.probeLimits("2", netip.AddrFrom4([4]byte{203, 0, 113, 1}))
	for _, l := range one {
		same := func(o *protocol.Limit) bool { return reflect.DeepEqual(l, o) }
		if slices.ContainsFunc(other, same) {
			described = append(described, describeLimit(l))
		}
	}
	slices.SortStableFunc(described, func(a, b DescribedLimit) int { return strings.Compare(a.Name, b.Name) })
	return described
}

// probeLimits returns what Options.AnnounceLimits announces to an invented client, or nil.
func (r *Router) probeLimits(client string, ip netip.Addr) (limits []*protocol.Limit) {
	announce := r.opts.AnnounceLimits
	if announce == nil {
		return nil
	}
	r.hook(context.Background(), "AnnounceLimits", func() {
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

func describeLimit(l *protocol.Limit) DescribedLimit {
	d := DescribedLimit{Name: l.Name, Capacity: l.Capacity, Refill: l.Refill, Per: time.Duration(l.RefillMs) * time.Millisecond, Scope: LimitScope(l.Scope)}
	for _, bucket := range l.Buckets {
		b := DescribedBucket{Costs: map[string]int64{}, Keep: maps.Clone(bucket.Keep)}
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
