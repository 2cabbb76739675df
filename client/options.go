//go:build !js

package client

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/tracing"
)

// Options configure a [Client]. The zero value is a working configuration.
type Options struct {
	// Token returns the token with which the client authenticates: it is sent as the header
	// "Authorization: Bearer", in place of that of Header. It is called before every attempt to connect, and
	// when the server warns that the identity expires. expired is true if the server has rejected the last
	// token, or says that it expires. An error counts as a failed attempt. If nil, or if the token is
	// "", no token is sent.
	Token func(ctx context.Context, expired bool) (string, error)

	// TokenInURL sends the token as the query parameter access_token instead, for servers that read it
	// there only. Proxies and servers write URLs to their logs.
	TokenInURL bool

	// Header is sent with every opening handshake.
	Header http.Header

	// HTTPClient opens connections. The default is http.DefaultClient, without its Timeout.
	HTTPClient *http.Client

	// ConnectTimeout bounds an attempt to connect, Token included. The default is 10 s.
	ConnectTimeout time.Duration

	// CallTimeout is the deadline of calls whose context has none. The default is 30 s.
	CallTimeout time.Duration

	// PingInterval is how long the client waits without receiving anything before it sends a ping. If
	// there is no pong within 10 s, it connects again. The default is 30 s.
	PingInterval time.Duration

	// Backoff is the delay between attempts to connect. It is added to the delay that the server demands.
	Backoff Backoff

	// StopOn returns true if the client must not connect again after a close code, usually one of the application's
	// own, from 4000 to 4999. What the codes of the protocol mean, its section 5 says. If nil, the client
	// connects again after all of the application's codes.
	StopOn func(code int) bool

	// Queue bounds the messages that wait until they can be sent.
	Queue Queue

	// Pacing delays messages so that the server's rate limits admit them, and sends those that a
	// rate limit has rejected again. Messages of one type, or of one bucket, keep their order; others
	// are not delayed. See docs/guides/clients.md.
	Pacing bool

	// Resume asks the server for a session, so that after an interruption it restores subscriptions
	// that its handlers have made. Without it, the client restores its own.
	Resume bool

	// Codec is the format of payloads, for example cbor.New(nil). If the server has not selected its subprotocol, the attempt to
	// connect fails with FAILED_PRECONDITION, and is repeated. Subprotocols in Header are offered, too. If nil, payloads are JSON.
	Codec Codec

	// MaxReadBytes is the largest message that the client accepts. The default is 16 MiB.
	MaxReadBytes int64

	// MaxQueuedBytes bounds the received messages that wait for handlers. A connection that exceeds
	// it is closed, and opened again when the handlers have caught up to half of it. The default is 64 MiB.
	MaxQueuedBytes int64

	// InjectTrace returns the trace context of calls, streams and events, from the context that Call,
	// Stream or Send has received: otel.Inject of module github.com/penstock-go/penstock/otel, for
	// example. A server that does not trace ignores it.
	InjectTrace func(context.Context) tracing.TraceContext

	// ExtractTrace returns ctx with the trace context of a call of the server, for the function that
	// answers it ([Handle]): otel.Extract, for example. If nil, the server sends none.
	ExtractTrace func(ctx context.Context, t tracing.TraceContext) context.Context

	// OnState is called after every change of the state, in order, and with Open again when the client has moved to another
	// connection because the server asked for it: without Resume, or if [Connection.Resumed] is false, what handlers of the server
	// had subscribed is gone. err is the reason of Waiting and Closed, and nil otherwise.
	OnState func(s State, err error)

	// OnError is called with errors that no caller receives: those of events that the server has
	// rejected after Send has returned, and [ErrOutcomeUnknown] for each event that the server had not confirmed
	// when the connection was lost.
	OnError func(typ string, err error)

	// Logger receives why the client is not connected, at the level Warn for each attempt and Error when it
	// does not try again, and errors that no hook handles, for example those of events without OnError,
	// and a handler's panic. The default is slog.Default(). Records contain neither tokens nor payloads.
	Logger *slog.Logger
}

// A Backoff is a random delay, from 100 ms to an upper bound that doubles with each attempt. It begins
// again after a connection has been open for 5 s.
type Backoff struct {
	Min time.Duration // the first upper bound; 500 ms if 0
	Max time.Duration // the last one; 20 s if 0
}

// A Queue bounds messages that wait because the client is not connected, or is pacing itself.
type Queue struct {
	MaxMessages int   // 1,000 if 0
	MaxBytes    int64 // 4 MiB if 0

	// MaxWait is how long an event waits before it fails with DEADLINE_EXCEEDED, even if a rate limit
	// has rejected it meanwhile: 30 s if 0. Calls have a deadline of their own.
	MaxWait time.Duration

	// Overflow decides what happens if the queue is full.
	Overflow Overflow
}

// An Overflow decides which message fails if a queue is full.
type Overflow int

// The values of Overflow.
const (
	DropNewest Overflow = iota // the one that does not fit
	DropOldest                 // those that have waited longest
)

func (o *Options) setDefaults() {
	o.HTTPClient, o.Logger = cmp.Or(o.HTTPClient, http.DefaultClient), cmp.Or(o.Logger, slog.Default())
	setPositive("ConnectTimeout", &o.ConnectTimeout, 10*time.Second)
	setPositive("CallTimeout", &o.CallTimeout, 30*time.Second)
	setPositive("PingInterval", &o.PingInterval, 30*time.Second)
	setPositive("Backoff.Min", &o.Backoff.Min, rules.MinBackoff)
	setPositive("Backoff.Max", &o.Backoff.Max, rules.MaxBackoff)
	setPositive("Queue.MaxMessages", &o.Queue.MaxMessages, 1000)
	setPositive("Queue.MaxBytes", &o.Queue.MaxBytes, 4<<20)
	setPositive("Queue.MaxWait", &o.Queue.MaxWait, 30*time.Second)
	setPositive("MaxReadBytes", &o.MaxReadBytes, 16<<20)
	setPositive("MaxQueuedBytes", &o.MaxQueuedBytes, 64<<20)
	if o.Codec != nil && o.Codec.Subprotocol() == "" {
		panic("client: the subprotocol of Options.Codec is empty; it must be an HTTP token")
	}
	if o.Queue.Overflow != DropNewest && o.Queue.Overflow != DropOldest {
		panic(fmt.Sprintf("client: Options.Queue.Overflow is %d; it must be DropNewest or DropOldest", o.Queue.Overflow))
	}
}

func setPositive[T int | int64 | time.Duration](name string, field *T, value T) {
	if *field = cmp.Or(*field, value); *field <= 0 {
		panic(fmt.Sprintf("client: Options.%s is %v; it must be positive", name, *field))
	}
}
