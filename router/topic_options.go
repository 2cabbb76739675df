package router

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// TopicOptions configure the topics that a pattern matches; see [Topic]. The zero value is a
// working configuration. It is also that of topics which no pattern matches.
type TopicOptions struct {
	// Authorize decides whether a client may subscribe to a topic by itself, with the message
	// $ws:subscribe of the protocol; see docs/protocol.md. It is called for every such message,
	// as a handler is: after ingress functions and middleware, in the order of the connection's
	// messages, and with the context of the message. It may block, which delays later messages
	// of the connection. The client receives the public part of the error. If nil, clients get
	// PERMISSION_DENIED, and only handlers can subscribe their connections.
	Authorize func(*Context, TopicMatch) error

	// Presence makes every subscriber present, as [Present] does. The info is empty unless that
	// sets it. A client that asks for it receives the members with the answer to $ws:subscribe,
	// and then every change, so clients learn the connection, tenant and user IDs of others.
	Presence bool

	// AuthorizeHidden decides, after Authorize, whether a client may subscribe without being present: it
	// receives publications and, if it asks for them, the members, and no member sees it. If nil, the client
	// gets PERMISSION_DENIED. Handlers subscribe their connections with [Hidden].
	AuthorizeHidden func(*Context, TopicMatch) error

	// PresenceGrace is for clients without sessions (Options.Resume): a user who loses the
	// connection stays present for this time, and is the same member when another connection of the
	// user joins the topic, on any node. No client sees the member leave and join. A user leaves at
	// once if the client closes the connection, or a browser leaves the page (1001), and with
	// [Router.DisconnectUser] and [Router.Revoke].
	//
	// In these topics, all connections of a user are one member, whose Member.ConnID identifies the
	// user; they should join with the same info, or with none. Anonymous connections are members of
	// their own, and leave with their connection or session. Members who are away count for
	// Limits.SessionsPerUser and ConnsPerIP. If 0, members leave with their connection or
	// session.
	PresenceGrace time.Duration

	// History retains publications, assigns each a position, and delivers them to subscribers on
	// all nodes once and in one order, or reports to Options.OnMessagesLost what the history no
	// longer holds. Publishing then waits until the message is stored. Options.Broker must be a
	// broker.HistoryBroker; without a broker, the history is in the memory of this process. All
	// histories together then use up to 256 MiB, beyond which publishing returns RESOURCE_EXHAUSTED;
	// a broker from memory.NewBrokerMaxHistoryBytes has another bound. Sessions use up to a quarter in
	// addition.
	History History

	// SlowConsumer is the policy for publications. The zero value means Options.SlowConsumer.
	SlowConsumer SlowConsumerPolicy

	// Messages declares the messages that are published to the topics, as zero values. The contract
	// that [Router.Describe] returns has them, and nothing else depends on it.
	Messages []Message

	// MaxPerConn bounds the subscriptions of one connection to topics of the pattern, in addition
	// to Limits.Topics. 0 means unlimited.
	MaxPerConn int
}

// A TopicMatch is the name of a topic that a pattern matches.
type TopicMatch struct {
	name    string
	pattern *topic.Pattern
}

// String returns the whole name.
func (n TopicMatch) String() string { return n.name }

// Value returns the part of the name that a wildcard of the pattern matches: "go" for the wildcard
// id if the pattern is "room/{id}" and the name "room/go". It returns "" if the pattern has no
// such wildcard.
func (n TopicMatch) Value(wildcard string) string {
	if n.pattern == nil {
		return ""
	}
	return n.pattern.Value(n.name, wildcard)
}

// Topic declares the topics whose names match a pattern. Clients can subscribe to declared topics
// only; handlers can use any topic. If opts is nil, the zero TopicOptions apply; otherwise opts is
// copied.
//
// A pattern has segments, separated by "/". A segment is a literal; or {name}, which matches one
// segment that is not empty; or, at the end, {name...}, which matches the rest of the name: one or
// more segments, and the empty rest in "room/" as well. As for the patterns of
// [net/http.ServeMux], the most specific pattern applies to a topic: "room/lobby" takes
// precedence over "room/{id}", and "room/{id}" over "{all...}". The order of registration does
// not matter. There is no escaping: a pattern matches the name as it is.
//
// Topic panics if the pattern is malformed, if an option is invalid, if the router has begun to
// serve, or if another pattern matches some of the same names and neither is more specific. It
// must not be called concurrently with itself.
func Topic(r *Router, pattern string, opts *TopicOptions) {
	position := callerPosition()
	if r == nil {
		panic(fmt.Sprintf("router: %s: the router of topic pattern %q is nil", position, pattern))
	}
	r.mustNotBeServing("Topic")
	segments, err := topicname.Parse(pattern)
	if err != nil {
		panic(fmt.Sprintf("router: %s: topic pattern %q is malformed: %v", position, pattern, err))
	}
	if remedy := segments.ForeignWildcard(); remedy != "" {
		panic(fmt.Sprintf("router: %s: topic pattern %q is malformed: %s", position, pattern, remedy))
	}
	var o TopicOptions
	if opts != nil {
		o = *opts
		o.Messages = slices.Clone(opts.Messages)
	}
	name := strconv.Quote(pattern) + ", registered at " + position
	mustBeSlowConsumerPolicy("TopicOptions.SlowConsumer of "+name, o.SlowConsumer)
	if o.PresenceGrace < 0 {
		panic(fmt.Sprintf("router: TopicOptions.PresenceGrace of %s is %v; it must not be negative", name, o.PresenceGrace))
	}
	if o.MaxPerConn < 0 {
		panic(fmt.Sprintf("router: TopicOptions.MaxPerConn of %s is %d; it must not be negative", name, o.MaxPerConn))
	}
	if err := o.History.validate(); err != nil {
		panic(fmt.Sprintf("router: TopicOptions of %s: %v", name, err))
	}
	if o.History.enabled() {
		r.mustHaveHistories("TopicOptions.History of "+name, "keeps no histories")
	}
	r.declarePublications(o.Messages, name, position)
	p := r.topics.Declare(pattern, position, segments, topic.Options{
		Presence:      o.Presence,
		PresenceGrace: o.PresenceGrace,
		Retention:     o.History.retention(),
		SlowConsumer:  wsconn.SlowConsumerPolicy(o.SlowConsumer),
		MaxPerConn:    o.MaxPerConn,
	})
	r.topicOptions[p] = declaredTopic{o.Authorize, o.AuthorizeHidden, o.History.Durability, o.Messages}
	r.subscribeClient, r.startTopic, r.publishStored = r.members.SubscribeClient, r.members.StartTopic, r.publishOnHistory
}

// A declaredTopic is what the router keeps of TopicOptions, besides the topic.Pattern. The linker would keep the methods
// of a History.
type declaredTopic struct {
	authorize, authorizeHidden func(*Context, TopicMatch) error
	durability                 broker.Durability
	messages                   []Message
}
