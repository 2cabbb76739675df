package router

import (
	"context"
	"net/netip"
	"time"
)

// An IngressContext describes a received message before its payload is decoded.
type IngressContext struct {
	// Type is a registered type, or one of the protocol: "__heartbeat", "$ws:abort", "$ws:answer" (an
	// answer to a [Call]), "$ws:auth", "$ws:credit", "$ws:hello", "$ws:resume",
	// "$ws:subscribe" or "$ws:unsubscribe". It is "" for any other message, and for one that cannot be parsed.
	//
	// A "$ws:resume" passes ingress twice: as itself, and then as one "$ws:subscribe" with the Work of all
	// topics that it subscribes and a Size of 0.
	Type string

	ConnID     string     // as Conn.ID returns it
	IP         netip.Addr // of the client, unmapped and without a zone; the zero netip.Addr if unknown
	Identity   Identity   // of the connection when the message was read
	Work       Work       // of a message of the protocol about topics
	Size       int64      // of the whole message in bytes, including the envelope
	ReceivedAt time.Time  // when the last byte of the message was read
}

// An IngressFunc admits a message by returning nil, or rejects it by returning an error,
// before the payload is decoded. The client receives the error: a [*LimitExceeded] as an
// exceeded limit, and any other error by its code.
//
// Many connections call it concurrently. Later messages of the same connection wait until it
// returns. The context is canceled when the connection is closed.
type IngressFunc func(ctx context.Context, in IngressContext) error
