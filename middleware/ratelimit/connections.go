package ratelimit

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// Connections returns a function for Options.OnOpen of a router that bounds how many connections
// of a key are open at the same time on all nodes that share the semaphore, while
// Limits.ConnsPerUser and Limits.ConnsPerIP of a router count those on its own node. The key is
// that of the user, or of the address if the connection is anonymous. It panics if semaphore is
// nil or an option is invalid.
//
//	semaphore := redis.NewSemaphore(client, "connections", 5)
//	r := router.New(&router.Options{OnOpen: ratelimit.Connections(semaphore, nil)})
//
// A connection acquires a permit when it is opened, and releases it when its context ends, also
// if something else rejects it. A connection without a permit is closed with 1013 and holds none.
// Options.OnLimitExceeded learns of it; ConcurrencyOptions.Observe receives every decision. If
// the semaphore cannot decide, Options.OnError of the router learns why, and the connection is closed
// with 1013 or, with FailOpen, stays open without a permit and is not counted.
//
// A connection whose identity changes keeps the permit of the key with which it was opened. So a
// client that connects anonymously and then logs in counts for its address. Limits.ConnsPerUser of
// the router follows the identity, on one node. To bound the connections of a user on all nodes
// nevertheless, acquire a permit of the semaphore before [router.Conn.SetIdentity], and release it
// when the context of the connection ends.
//
// OnOpen runs after the handshake. The limits of the router reject a connection before it, so
// they should be set too, as the larger protection against floods.
//
// The permits of a node that died without closing its connections are in use until their
// leases expire, ten seconds with package redis. Until then its clients may be rejected
// elsewhere. With package redis every open connection renews its permit every third of a lease,
// so n connections cost 0.3 n renewals per second on the Redis server, and a timer each.
func Connections(semaphore limit.Semaphore, opts *ConcurrencyOptions) func(context.Context, *router.Conn) error {
	return newConcurrency("Connections", router.LimitConnections, semaphore, opts).open
}

// open acquires the permit of a connection for as long as the connection is open.
func (c *concurrency) open(ctx context.Context, conn *router.Conn) error {
	permit, err := c.acquire(ctx, conn.Ingress())
	switch {
	case err != nil && c.FailOpen:
		return nil
	case err != nil:
		return tryAgainLater(errors.Unavailable, "limits cannot be checked")
	case permit.Release == nil:
		return errors.Join(c.exceeded(permit), tryAgainLater(errors.ResourceExhausted, "too many connections"))
	}
	context.AfterFunc(conn.Context(), permit.Release) // also ends if OnOpen rejects the connection after this
	return nil
}

// tryAgainLater rejects a connection with an error as the reason of the close frame.
func tryAgainLater(code errors.Code, message string) error {
	return &router.CloseError{
		Code:   router.StatusTryAgainLater,
		Reason: wire.CloseReason(&protocol.ErrorPayload{Code: code, Message: message}),
	}
}
