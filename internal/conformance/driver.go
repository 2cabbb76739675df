package conformance

import (
	"context"
	"encoding/json"
	"time"
)

// ProtocolVersion is the version of the protocol between the runner and drivers.
const ProtocolVersion = 1

// A Driver operates one client. Commands return at once; what happens is reported as events.
type Driver interface {
	// Do executes a command.
	Do(c *Command)
	// Events returns what has happened.
	Events() *Inbox[Event]
	// Context ends if the driver fails. Its cause says why.
	Context() context.Context
	// Stop ends the driver after its client was closed. It reports false if something of the client goes on.
	Stop() bool
}

// A Command is what a driver must do. ID names an operation, whose settlement is reported with it.
type Command struct {
	Do    string          `json:"do"`
	ID    string          `json:"id,omitempty"`
	N     int             `json:"n,omitempty"`
	Topic string          `json:"topic,omitempty"`
	Opts  json.RawMessage `json:"opts,omitempty"` // of a client, a call or a subscription
}

// ClientOptions are those that every client has. Zero means the default of the client.
type ClientOptions struct {
	URL       string   `json:"url"`
	Tokens    []string `json:"tokens,omitempty"` // one for each request, the last one for all further ones; "!hang" and "!fail" are none
	CBOR      bool     `json:"cbor,omitempty"`
	Pacing    bool     `json:"pacing,omitempty"`
	Session   bool     `json:"session,omitempty"`
	TimeoutMs int      `json:"timeoutMs,omitempty"` // of calls
	Messages  int      `json:"messages,omitempty"`  // of the queue
	Oldest    bool     `json:"oldest,omitempty"`    // a full queue drops the oldest message
	ExpireMs  int      `json:"expireMs,omitempty"`  // of events that wait
}

// CallOptions are those of a call or a stream.
type CallOptions struct {
	TimeoutMs int `json:"timeoutMs,omitempty"`
}

// TopicOptions are those of a subscription.
type TopicOptions struct {
	Epoch    string `json:"epoch,omitempty"`
	Offset   uint64 `json:"offset,omitempty"`
	State    bool   `json:"state,omitempty"`
	Presence bool   `json:"presence,omitempty"`
	Last     int    `json:"last,omitempty"`
	Hidden   bool   `json:"hidden,omitempty"`
}

// An Event is something that a client has done. Name is one of
//
//	settled   the operation ID has ended: Code is "" or that of the error
//	item      the stream ID has the item N
//	message   SAID with N was handled; Topic and Offset are those of a publication with a position
//	served    the call CONFIRM with N has arrived; served-ended: its context has ended
//	state     the client is in State
//	loss      of Topic: From and To, or Ended
//	ended     the subscription to Topic, with Code
//	presence  of Topic: N members
//	token     was asked for; Expired
//	error     that belongs to no operation
//	position  of Topic; allowed: the wait in Ms
type Event struct {
	Name         string    `json:"name"`
	ID           string    `json:"id,omitempty"`
	N            int       `json:"n,omitempty"`
	Topic        string    `json:"topic,omitempty"`
	Epoch        string    `json:"epoch,omitempty"`
	Offset       uint64    `json:"offset,omitempty"`
	FromState    bool      `json:"fromState,omitempty"`
	Code         string    `json:"code,omitempty"`
	Unknown      bool      `json:"unknown,omitempty"` // the server may have handled the message
	RetryAfterMs int       `json:"retryAfterMs,omitempty"`
	Detail       string    `json:"detail,omitempty"` // details.reason of an error
	State        string    `json:"state,omitempty"`
	From         uint64    `json:"from,omitempty"`
	To           uint64    `json:"to,omitempty"`
	Ended        bool      `json:"ended,omitempty"`
	Expired      bool      `json:"expired,omitempty"`
	Ms           int       `json:"ms,omitempty"`
	At           time.Time `json:"-"` // when it was received
}
