package router

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/netpoll"
)

// Options configure a [Router]. The zero value is a working configuration.
type Options struct {
	// Authenticate says who a request comes from, before it is upgraded. An
	// error refuses the connection with the HTTP status of its code: 401
	// UNAUTHENTICATED, 403 PERMISSION_DENIED, 429 RESOURCE_EXHAUSTED or a
	// [*LimitExceeded], 503 UNAVAILABLE, otherwise 500. If nil, every
	// connection is anonymous. [Token] finds the token in a request.
	Authenticate func(*http.Request) (Identity, error)

	// OnOpen is called once a connection is there. Its messages wait for it. An
	// error refuses the connection: a [*CloseError] says with which code, any
	// other error closes with 1011.
	OnOpen func(context.Context, *Conn) error

	// OnClose is called when a connection that OnOpen accepted has ended and the
	// last of its handlers has returned, with the code and the reason of the
	// close frame that came or went first; without one the code is
	// [StatusAbnormal].
	OnClose func(*Conn, CloseError)

	// OnError is called for every panic, every error without a code and every one with a
	// private half: a client sees only a part of them. If nil, they go to Logger.
	OnError func(ErrorReport)

	// OnLimitExceeded is called once for every message or connection that a
	// limit of the router turned away; what a full queue drops may be told together, see
	// [LimitExceeded]. While 64 calls for a connection wait, so do its messages.
	OnLimitExceeded func(LimitExceeded)

	// LimitAction is what the client gets for a message over a limit. Routes may
	// choose otherwise.
	LimitAction LimitAction

	// CloseCode is the code of the close frame where the action is [Close]. If
	// nil, it is 1009 for a payload and 1013 for any other limit.
	CloseCode func(LimitExceeded) StatusCode

	// SlowConsumer is what happens to a message for a connection that reads too
	// slowly. What it drops is reported to OnLimitExceeded.
	SlowConsumer SlowConsumerPolicy

	// OnBackpressure is called when more than half of what a connection's outgoing
	// queue may hold waits there, and again only after that was less than a
	// quarter. It is the time to send less.
	OnBackpressure func(c *Conn, messages, bytes int)

	// Broker carries what is published to the other nodes. If nil, there are none.
	Broker broker.Broker

	// OnPresence is called when a connection enters a topic or leaves it, on any node,
	// while connections of this node are in it; when the last of them leaves, all
	// others count as gone. Calls come one at a time.
	OnPresence func(PresenceEvent)

	// OnMessagesLost is called when messages from other nodes were lost: how many, or 0 if
	// that is not known. Clients that must miss nothing should ask for what they
	// have missed. Calls come one at a time.
	OnMessagesLost func(topic string, messages int)

	// CompressMinBytes compresses messages of at least so many bytes for clients
	// that offer permessage-deflate (RFC 7692; browsers do), and lets such clients
	// compress theirs. 0 compresses nothing; below 512 it seldom pays. A message
	// to many is compressed once. No window is kept between messages: the
	// compressors take 1.2 MB for each CPU, and a compressed message 45 kB while it
	// comes in. All limits count what is not compressed. Where a message holds both
	// a secret and what an attacker may choose, its length tells about the secret.
	CompressMinBytes int

	// Validate is called with every decoded message, after its own Validate
	// method. It is the place for a validation library. An error without a code
	// is told to the client as INVALID_ARGUMENT.
	Validate func(message any) error

	// Origins are the pages that browsers may connect from, besides those of the
	// server's own host: "https://example.com", or "https://*.example.com" for
	// all subdomains, or "*" for every page. Requests without an Origin header
	// do not come from a browser's page and are admitted.
	Origins []string

	// Subprotocols that the application speaks, the preferred one first: HTTP tokens (RFC
	// 9110, section 5.6.2), such as chat.v1.
	Subprotocols []string

	// TrustedProxies are the reverse proxies whose headers say where a request comes from.
	// By default there are none.
	TrustedProxies TrustedProxies

	// BufferBytes is how much one system call reads or writes: 512 to 65,536
	// bytes, 16 KiB if it is 0. Buffers are held only while there is something in
	// them, so they cost by the connections that are busy at the same time.
	BufferBytes int

	Limits   Limits
	Timeouts Timeouts

	// Logger is for what nobody else is told, and at the level of debugging for connections
	// that come and go. It gets no payload, token or cookie, unless the application writes
	// one into an error. If nil, it is slog.Default().
	Logger *slog.Logger
}

// Limits bound what clients can make the server hold. A zero field takes its
// default.
type Limits struct {
	MaxMessageBytes int64 // of one message, envelope included; 64 KiB. Routes may have their own
	MaxReadBytes    int64 // above it a connection is closed with 1009; 1 MiB, or MessageBytes if that is more
	Concurrency     int   // calls of one connection whose handlers have not returned; 64
	Conns           int   // connections in all; no limit
	ConnsPerIP      int   // connections from one address, or from one /64 of IPv6; no limit
	ConnsPerUser    int   // connections of one user; no limit
	QueueBytes      int   // waiting to be sent to one connection; 1 MiB
	QueueMessages   int   // the same, counted in messages; 1024
	Topics          int   // topics that one connection subscribes to; 1000

	// Received messages that wait until earlier ones of their connection have been
	// handled. A connection above its limit is not read until it is below again, so that
	// TCP slows the client down. So are all connections with such messages while the
	// router is above its limit. Either is exceeded by at most one message for each
	// connection.
	InboundBytes      int64 // of one connection; 1 MiB
	InboundBytesTotal int64 // of all connections; 64 MiB
}

// Timeouts bound how long things take. A zero field takes its default.
type Timeouts struct {
	Call    time.Duration // for an RPC, after which it is answered with DEADLINE_EXCEEDED; 30 s
	Message time.Duration // from the first byte of a message to its last; 10 s
	Write   time.Duration // for a write to the socket; 10 s
	Close   time.Duration // for the peer to answer a close frame; 5 s
	Ping    time.Duration // of silence, after which the peer is pinged; 25 s
	Pong    time.Duration // for the answer to a ping; 10 s
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	l, t := &opts.Limits, &opts.Timeouts
	setDefault("Limits.MaxMessageBytes", &l.MaxMessageBytes, 64<<10)
	setDefault("Limits.MaxReadBytes", &l.MaxReadBytes, max(1<<20, l.MaxMessageBytes))
	setDefault("Limits.Concurrency", &l.Concurrency, 64)
	setDefault("Limits.Connections", &l.Conns, 0)
	setDefault("Limits.ConnsPerIP", &l.ConnsPerIP, 0)
	setDefault("Limits.ConnsPerUser", &l.ConnsPerUser, 0)
	setDefault("Limits.QueueBytes", &l.QueueBytes, 1<<20)
	setDefault("Limits.QueueMessages", &l.QueueMessages, 1024)
	setDefault("Limits.Topics", &l.Topics, 1000)
	setDefault("Limits.InboundBytes", &l.InboundBytes, 1<<20)
	setDefault("Limits.InboundBytesTotal", &l.InboundBytesTotal, 64<<20)
	setDefault("Timeouts.Call", &t.Call, 30*time.Second)
	setDefault("Timeouts.Message", &t.Message, 10*time.Second)
	setDefault("Timeouts.Write", &t.Write, 10*time.Second)
	setDefault("Timeouts.Close", &t.Close, 5*time.Second)
	setDefault("Timeouts.Ping", &t.Ping, 25*time.Second)
	setDefault("Timeouts.Pong", &t.Pong, 10*time.Second)
	if l.MaxReadBytes < l.MaxMessageBytes {
		panic(fmt.Sprintf("router: Limits.MaxReadBytes is %d, below Limits.MaxMessageBytes, %d", l.MaxReadBytes, l.MaxMessageBytes))
	}
	for _, p := range opts.Subprotocols {
		if !isToken(p) {
			panic(fmt.Sprintf("router: Subprotocols has %q; it must be a token, such as chat.v1", p))
		}
	}
	if err := opts.TrustedProxies.Validate(); err != nil {
		panic(fmt.Sprintf("router: %v", err))
	}
	setDefault("BufferBytes", &opts.BufferBytes, 16<<10)
	setDefault("CompressMinBytes", &opts.CompressMinBytes, 0)
	if opts.BufferBytes < 512 || opts.BufferBytes > netpoll.MaxBufferBytes {
		panic(fmt.Sprintf("router: BufferBytes is %d; it must be from 512 to %d", opts.BufferBytes, netpoll.MaxBufferBytes))
	}
	mustBeLimitAction(opts.LimitAction)
	if opts.SlowConsumer > Conflate {
		panic(fmt.Sprintf("router: SlowConsumer is %d; it must be Disconnect, DropOldest, DropNewest or Conflate", opts.SlowConsumer))
	}
	if opts.CloseCode == nil {
		opts.CloseCode = defaultCloseCode
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

func setDefault[T int | int64 | time.Duration](name string, field *T, value T) {
	if *field < 0 {
		panic(fmt.Sprintf("router: %s is %v; it must not be negative", name, *field))
	}
	if *field == 0 {
		*field = value
	}
}
