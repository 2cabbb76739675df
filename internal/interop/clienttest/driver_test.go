package clienttest_test

import (
	"encoding/json"
	"time"
)

// A driver operates one client. Commands return at once; what happens is reported as events.
type driver interface {
	// do executes a command.
	do(c *command)
	// events returns what has happened.
	events() *inbox[event]
	// scale is how much faster the clock of the client runs than that of the test.
	scale() int
	// stop ends the driver after its client was closed. It reports false if something of the client goes on.
	stop() bool
}

// A command is what a driver must do. ID names an operation, whose settlement is reported with it.
type command struct {
	Do    string          `json:"do"`
	ID    string          `json:"id,omitempty"`
	N     int             `json:"n,omitempty"`
	Topic string          `json:"topic,omitempty"`
	Opts  json.RawMessage `json:"opts,omitempty"` // of a client, a call or a subscription
}

// clientOptions are those that both clients have. Zero means the default of the client.
type clientOptions struct {
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

type callOptions struct {
	TimeoutMs int `json:"timeoutMs,omitempty"`
}

type topicOptions struct {
	Epoch    string `json:"epoch,omitempty"`
	Offset   uint64 `json:"offset,omitempty"`
	State    bool   `json:"state,omitempty"`
	Presence bool   `json:"presence,omitempty"`
}

// An event is something that a client has done. Name is one of
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
type event struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	N            int    `json:"n"`
	Topic        string `json:"topic"`
	Epoch        string `json:"epoch"`
	Offset       uint64 `json:"offset"`
	FromState    bool   `json:"fromState"`
	Code         string `json:"code"`
	Unknown      bool   `json:"unknown"` // the server may have handled the message
	RetryAfterMs int    `json:"retryAfterMs"`
	Detail       string `json:"detail"` // details.reason of an error
	State        string `json:"state"`
	From         uint64 `json:"from"`
	To           uint64 `json:"to"`
	Ended        bool   `json:"ended"`
	Expired      bool   `json:"expired"`
	Ms           int    `json:"ms"`
	At           time.Time
}
