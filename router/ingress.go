package router

import (
	"context"
	"net/netip"
	"time"
)

// An IngressContext is what is known of a message before its payload is read.
type IngressContext struct {
	Type       string     // a registered type, "__heartbeat", or "" for anything else
	ConnID     string     // assigned by the router, unique in this process
	IP         netip.Addr // of the client, unmapped and without zone; invalid if unknown
	Identity   Identity   // what Options.Authenticate returned
	Size       int64      // bytes of the whole message, envelope included
	ReceivedAt time.Time  // server clock, when the message's last byte was read
}

// An Identity says who a connection speaks for. The zero Identity is an
// anonymous connection.
type Identity struct {
	TenantID string
	UserID   string // "" if the connection is anonymous
	Data     any    // the application's own
}

// An IngressFunc decides whether a message may enter, before its payload is
// read. It admits the message by returning nil. An error turns it away and is
// told to the client: a [*LimitExceeded] as a limit, anything else by its code.
//
// It is called by many connections at once, and a connection's later messages
// wait for it. Its context ends with the connection.
type IngressFunc func(ctx context.Context, in IngressContext) error
