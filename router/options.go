package router

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/tracing"
)

// Options configure a [Router]. The zero value is a working configuration. Some fields have a type of the package, but
// are declared as interfaces, so that a program which does not set them does not link what they need.
type Options struct {
	// Authenticate returns the identity of a request before it is upgraded. An error refuses
	// the request with the HTTP status of its code: 401 UNAUTHENTICATED, 403
	// PERMISSION_DENIED, 429 RESOURCE_EXHAUSTED or a [*LimitExceeded], 503 UNAVAILABLE, 400
	// INVALID_ARGUMENT, 501 UNIMPLEMENTED, otherwise 500. An identity that has expired is
	// refused with 401. If nil, every connection is anonymous. [Token] returns the token of a
	// request.
	//
	// It is called again when a client refreshes its identity with $ws:auth (see the protocol,
	// section 8), with a request that has only the client's address, the query parameter
	// access_token, and the context of the call. The client receives the error; the identity
	// replaces the current one if the tenant and the user are the same, or if the connection is
	// anonymous. Authenticate should return when the context is canceled, because later messages
	// of the connection wait for it.
	//
	// Clients with invalid credentials are expected: the private part of an error with the code
	// UNAUTHENTICATED or PERMISSION_DENIED goes to OnRefused and to the log at debug level, not
	// to OnError.
	Authenticate func(*http.Request) (Identity, error)

	// RefuseAfterUpgrade makes refusals visible to pages in a browser, which cannot see the
	// HTTP status of a handshake. A refused request is upgraded, and the connection closed with
	// 4000 plus the status, [StatusUnauthenticated] for example, and the error as JSON in the
	// reason. This includes requests of other origins, and excludes those that are not a valid
	// handshake, and those during Shutdown, so that a reverse proxy sees the status 503 and tries
	// another node. An error of OnOpen other than INTERNAL closes the connection with such a code,
	// too.
	//
	// Refused connections are not opened: OnOpen and OnClose are not called, no limit of
	// connections counts them, and Shutdown does not wait for them. They end at the latest after
	// five seconds. While there are 1,024 of them, further requests are refused with the status.
	RefuseAfterUpgrade bool

	// ConnContext returns a context whose values those of the connection and its messages have:
	// the span or the logger of the request, for example. It is called after Authenticate; the
	// connection does not end with the context. The connection keeps what the context refers to, so
	// it should not be derived from the context of a large request. If nil, the connection's
	// context has no values. See also [Conn.Set].
	ConnContext func(*http.Request) context.Context

	// OnOpen is called after the upgrade and before the connection's messages are read. An
	// error closes the connection: a [*CloseError] with its code, any other error with 1011,
	// unless RefuseAfterUpgrade is set.
	OnOpen func(context.Context, *Conn) error

	// OnClose is called after a connection that OnOpen accepted has been closed and the last
	// of its handlers has returned. The CloseError holds the code and the reason of the close
	// frame that was sent or received first; its code is [StatusAbnormal] if there was none.
	// [Conn.Resumable] reports whether the client may come back and resume its session.
	OnClose func(*Conn, CloseError)

	// OnError, OnRefused and OnLimitExceeded are the three hooks of what goes wrong. OnError has the causes that clients
	// do not learn, for developers; OnRefused who was refused and why, sampled, for support; OnLimitExceeded each
	// exceeded limit, for abuse. Metrics count all of it by [Router.Observe], without naming anyone.
	//
	// OnError is called for errors that the client does not receive completely: every panic,
	// every error without a code, and every error with a private part, except those of
	// Authenticate that are expected. If nil, they are logged.
	OnError func(ErrorReport)

	// OnRefused is called for refused requests, connections and messages, so that an operator
	// can find out why a client was refused: at most once per second for a user, or for the
	// address (an IPv6 /64 network) of an anonymous client, and for at most 4,096 of these per
	// second. Refusal.Unreported counts the others. A message is refused if it is answered with an error
	// at any stage of the pipeline, other than CANCELLED, or would be without its LimitAction. The
	// call delays only later messages of the same connection.
	OnRefused func(Refusal)

	// OnLimitExceeded is called for every message and connection that exceeds a limit; see
	// LimitExceeded.Messages for those that a full send queue drops. The calls for one
	// connection run one at a time. While 64 of them wait, the connection is not read.
	OnLimitExceeded func(LimitExceeded)

	// LimitAction decides how the client is answered when a message exceeds a limit. A route
	// may override it.
	LimitAction LimitAction

	// SlowConsumer decides what happens to messages for a client that reads slowly; Disconnect by
	// default. It applies when the send queue is full and the kernel takes no more for the client: the
	// queue of a client that reads is written first, however much is sent at once. Dropped messages
	// are reported to OnLimitExceeded, conflated ones are not.
	SlowConsumer SlowConsumerPolicy

	// OnBackpressure is called when a connection's send queue becomes more than half full, and
	// again only after it has been less than a quarter full. The application should then send
	// less.
	OnBackpressure func(c *Conn, messages, bytes int)

	// Broker carries publications and presence between nodes. If nil, this is the only node.
	Broker broker.Broker

	// UserHistory stores what [Router.SendToUser] sends, for each user, and what
	// [Router.DisconnectUser] and [Router.Revoke] end. Nodes that were cut off from the broker
	// learn of it when they return, and a client that resumes its session receives the messages for
	// its user that it has missed; see Resume. These methods then wait until it is stored, as
	// Publish does on a topic with a History. All nodes must have the option, or none. Broker must
	// be a broker.HistoryBroker; without a broker, the histories are in the memory of this process,
	// with those of topics. It is a [History]. If nil or zero, nothing is stored.
	UserHistory interface{ enableUserLogs(*Router) }

	// OnPresence is called when a member of any node joins a topic or leaves it; see [Member]. A
	// member whose client comes back in time (Resume, TopicOptions.PresenceGrace) neither leaves
	// nor joins. A topic is reported from the first time that a connection of this node joins it,
	// until this node's last subscriber leaves it; it is then called for the members on other
	// nodes, too. Calls run one at a time, in order. While more than 1024 of them wait, a member
	// that leaves and whose joining waits, or that returns as it was, is not reported.
	OnPresence func(PresenceEvent)

	// OnMessagesLost is called when messages of topic from other nodes were lost, with their
	// number, or 0 if it is unknown. The topic "" stands for calls of SendToUser, DisconnectUser
	// and Revoke. It is called when the node receives messages of the topic again: clients that
	// need every message should then load their state. Calls run one at a time, in order.
	OnMessagesLost func(topic string, messages int)

	// CompressMinBytes enables permessage-deflate (RFC 7692) for clients that offer it, as
	// browsers do, and compresses messages of at least this many bytes. 0 disables
	// compression; below 512 it seldom saves anything.
	//
	// A message to many connections is compressed once. The compressors use 0.8 MB per CPU, and a
	// compressed message uses 41 kB while it is received. All limits count uncompressed bytes. If a
	// message contains both a secret and data that an attacker chooses, its compressed length reveals
	// information about the secret.
	CompressMinBytes int

	// CompressWindowBytes lets compressed messages refer to earlier ones of their connection, so that
	// small messages that resemble each other take a fraction of their size. It bounds the memory of
	// all connections together: each takes 12 KiB from its handshake to its end, and a connection for
	// which nothing is left compresses as if the option were 0. Then no context is kept between
	// messages. It needs CompressMinBytes, which may be as low as 64 with it.
	//
	// A message to many connections is still compressed once, and without references. The length of a
	// message also reveals information about earlier messages of its connection: do not set it if a
	// connection carries secrets, and others choose the content of some of its messages.
	CompressWindowBytes int64

	// Validate is called for every decoded message, after its own Validate method: for a
	// validation library, for example. The client receives an error without a code as
	// INVALID_ARGUMENT. It receives several errors.InvalidField that are joined by errors.Join
	// together: at most 32 of them, and those after the first with at most 4 KiB of text.
	Validate func(message any) error

	// RejectUnknownFields refuses payloads that contain a field which the message does not have, with
	// INVALID_ARGUMENT and the name of the field. Names are case-sensitive. If false, such fields
	// are ignored, and clients may be newer than the server. Unknown members of the envelope are
	// always ignored. It applies to JSON; codecs have options of their own.
	RejectUnknownFields bool

	// AnnounceLimits returns what a message of a type takes from the limits that a client should
	// know, so that it can pace itself; ratelimit.Announce of package middleware/ratelimit
	// returns such a function. It is called when a client sends the greeting, once for every
	// type, with the connection's IngressContext: Type is a registered type or one of the
	// protocol's, and Size the largest size of its messages. Many connections call it
	// concurrently. [Router.Describe] calls it with an empty ConnID; see [description.Limit]. If it is
	// nil or panics, no limits are announced.
	AnnounceLimits func(IngressContext) []AnnouncedLimit

	// ContractHash is announced at the greeting, so that clients which were generated from another
	// version of the messages know it: [contracttest.Check] writes it to a file, which a program can
	// embed. White space around it is ignored. If empty, nothing is announced.
	//
	// [contracttest.Check]: https://pkg.go.dev/github.com/penstock-go/penstock/contract/contracttest#Check
	ContractHash string

	// Origins lists the web pages that may connect, in addition to those of the server's own
	// host: "https://example.com", "https://*.example.com" for all subdomains, or "*" for
	// every page. A request without the header Origin is not sent by a page in a browser and
	// is accepted.
	Origins []string

	// Subprotocols lists the subprotocols of the application, preferred one first. Each must
	// be an HTTP token (RFC 9110, section 5.6.2), such as chat.v1.
	Subprotocols []string

	// Codecs lists payload formats other than JSON, preferred one first. A client that offers the
	// subprotocol of one gets it, even if it also offers one of Subprotocols: its messages are then
	// binary, with the payload in this format. All nodes must have the same codecs, in any order:
	// a publication is encoded once in each format, and a connection whose format the publishing
	// node does not have misses it, which is reported to OnMessagesLost. New panics if two entries
	// of Codecs and Subprotocols are the same, or if there are more than 16 codecs.
	Codecs []Codec

	// TrustedProxies configures the reverse proxies that report the client's address. The zero value
	// trusts none. The Logger receives one warning, at level WARN, of one that is missing.
	TrustedProxies clientip.TrustedProxies

	// Resume lets clients continue their sessions on another connection: it is a [ResumeOptions]. If nil, they cannot.
	Resume interface{ enableSessions(*Router) }

	Limits   Limits
	Timeouts Timeouts

	// Tracer makes spans of messages, calls to clients and publications: that of module
	// github.com/penstock-go/penstock/otel, for example. If nil, nothing is traced, and that costs nothing.
	Tracer tracing.Tracer

	// Development makes the Logger receive what an application most often gets wrong, at level WARN,
	// once per cause and with the remedy: refused requests, subscriptions that no
	// TopicOptions.Authorize can permit, messages, replies and calls of the server that
	// [Router.Describe] does not know, and handlers that leave their goroutine locked to an OS thread.
	// What differs from the contract is at level ERROR if the application declares any message that it
	// sends; see [DeclareMessage]. At most 1,000 causes are reported. The lines contain parts of
	// requests, such as origins and names of topics, so it is not for production.
	Development bool

	// Logger receives errors that no hook handles, and connection events at debug level. It
	// receives no payload, token or cookie, unless the application includes one in an error.
	// Frequent lines of one kind are sampled, with their number as "suppressed".
	// If nil, slog.Default() is used.
	Logger *slog.Logger
}

// Limits bound the resources that clients can use. A zero field means its default, and the number
// [Unlimited] no limit. Every node
// counts for itself; ratelimit.Connections of package middleware/ratelimit bounds the connections
// of a user or an address on all nodes.
type Limits struct {
	MaxMessageBytes int64 // of one message including the envelope; 64 KiB. A route may override it. One above 1 MiB, and above what any type may have, closes the connection with 1009
	Elements        int   // array elements and object members in one payload, at all levels, else INVALID_ARGUMENT; 10,000. They take more memory decoded than as JSON. For other formats see [Codec]
	// Concurrency bounds the calls of one connection whose handlers have not returned; 64. As many events
	// of types that are [Route.Concurrent] run, later messages wait; and as many calls to the client ([Call])
	// may have no answer. 64 times as many CallConn to other nodes, CallUser and UserConns may be in progress,
	// and calls of other nodes to clients of this one.
	Concurrency int

	Conns           int // connections of all clients on this node; unlimited
	ConnsPerIP      int // connections of one address on this node; 1000
	ConnsPerUser    int // connections of one user on this node; unlimited
	QueueBytes      int // in the send queue of one connection; 1 MiB. Of the messages that wait for room in it, at most two are encoded
	QueueMessages   int // in the send queue of one connection; 1024
	Topics          int // subscriptions of one connection; 1000
	SessionsPerUser int // of one user, whose clients are away, with those who stay present for a TopicOptions.PresenceGrace; the oldest one ends if there are more; 100. ConnsPerIP bounds those of one address in the same way

	// InboundBytes bounds the received messages of all connections that wait until earlier messages of their connection
	// have been handled; 64 MiB. Those of one connection have at most a MiB of it. While a connection, or the router, is
	// above its limit, the connections with such messages are not read, so that TCP slows the clients down. Either limit is
	// exceeded by at most one message per connection.
	//
	// It also counts messages that are arriving and longer than 16 KiB. Such a message waits for all that it may need
	// before more than that is read of it, so that it is never stuck between others that wait; if that takes longer than
	// Timeouts.Message, the connection is closed with 1013. Each connection that is busy may hold two buffers of 16 KiB
	// besides.
	InboundBytes int64

	// Rates that no ordinary application reaches, for servers on which it sets none with UseIngress,
	// which follows them. An address is an IPv4 address or an IPv6 /64 network, as TrustedProxies says:
	// behind a proxy that is not trusted, all clients have one address. Unlimited disables a rate, as
	// in Rate{PerSecond: Unlimited}.
	HandshakesPerIP Rate // requests of an address; 100 per second, 2000 at once
	MessagesPerConn Rate // of any type, by one connection; 1000 per second, 10,000 at once
	MessagesPerIP   Rate // by all connections of an address; 10,000 per second, 50,000 at once
}

// Timeouts bound how long operations take. A zero field means its default.
type Timeouts struct {
	Call    time.Duration // from receiving a call to its answer, or from sending one to its answer ([Call]), else DEADLINE_EXCEEDED; 30 s
	Message time.Duration // from the first byte of a message to its last, and of one write to the socket; 10 s
	Ping    time.Duration // without data from the client, after which it is pinged; 25 s
	Pong    time.Duration // from a ping to the next data from the client; 10 s. And from sending a close frame to receiving the client's, then at most 5 s

	// LameDuck is the first phase of Shutdown: the health check fails, and connections are still
	// accepted. It should be longer than the load balancer takes to notice; 0 skips it.
	LameDuck time.Duration
}

// withDefaults returns a copy with defaults. It panics if an option is invalid.
func (o *Options) withDefaults() Options {
	opts := *cmp.Or(o, &Options{})
	opts.Limits.setDefaults()
	opts.Timeouts.setDefaults()
	setDefault("CompressMinBytes", &opts.CompressMinBytes, 0)
	setDefault("CompressWindowBytes", &opts.CompressWindowBytes, 0)
	mustFitWindows(opts.CompressWindowBytes, opts.CompressMinBytes)
	for _, p := range opts.Subprotocols {
		if !rules.IsToken(p) {
			panic(fmt.Sprintf("router: Subprotocols contains %q; it must be an HTTP token, such as chat.v1", p))
		}
	}
	if err := opts.TrustedProxies.Validate(); err != nil {
		panic(fmt.Sprintf("router: %v", err))
	}
	mustBeLimitAction(opts.LimitAction)
	mustBeSlowConsumerPolicy("SlowConsumer", opts.SlowConsumer)
	opts.SlowConsumer = cmp.Or(opts.SlowConsumer, Disconnect)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	return opts
}

func (l *Limits) setDefaults() {
	setDefault("Limits.MaxMessageBytes", &l.MaxMessageBytes, 64<<10)
	setDefault("Limits.Elements", &l.Elements, 10_000)
	setDefault("Limits.Concurrency", &l.Concurrency, 64)
	setDefault("Limits.Conns", &l.Conns, 0)
	setDefault("Limits.ConnsPerIP", &l.ConnsPerIP, 1000)
	setDefault("Limits.ConnsPerUser", &l.ConnsPerUser, 0)
	setDefault("Limits.QueueBytes", &l.QueueBytes, 1<<20)
	setDefault("Limits.QueueMessages", &l.QueueMessages, 1024)
	setDefault("Limits.Topics", &l.Topics, 1000)
	setDefault("Limits.SessionsPerUser", &l.SessionsPerUser, 100)
	setDefault("Limits.InboundBytes", &l.InboundBytes, 64<<20)
	l.HandshakesPerIP = l.HandshakesPerIP.withDefault("HandshakesPerIP", Rate{100, 2000})
	l.MessagesPerConn = l.MessagesPerConn.withDefault("MessagesPerConn", Rate{1000, 10_000})
	l.MessagesPerIP = l.MessagesPerIP.withDefault("MessagesPerIP", Rate{10_000, 50_000})
}

func (t *Timeouts) setDefaults() {
	setDefault("Timeouts.Call", &t.Call, 30*time.Second)
	setDefault("Timeouts.Message", &t.Message, 10*time.Second)
	setDefault("Timeouts.Ping", &t.Ping, 25*time.Second)
	setDefault("Timeouts.Pong", &t.Pong, 10*time.Second)
	setDefault("Timeouts.LameDuck", &t.LameDuck, 0)
}

// setDefault sets a zero field to its default. It panics if the field is negative.
func setDefault[T int | int64 | time.Duration](name string, field *T, value T) {
	if *field < 0 {
		panic(fmt.Sprintf("router: %s is %v; it must not be negative", name, *field))
	}
	if *field == 0 {
		*field = value
	}
}
