// Package description has what both ends of a connection must agree on, as router.Router.Describe returns it.
package description

import (
	"reflect"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Contract is what both ends of a connection must agree on. router.Router.Describe returns it; package
// contract generates JSON Schema, AsyncAPI and TypeScript from it. All lists are sorted.
type Contract struct {
	Routes []Route   // messages that clients send, by type
	Sent   []Message // messages that clients receive: of DeclareMessage and of TopicOptions.Messages
	Calls  []Call    // calls of the server, of DeclareCall
	Topics []Topic   // by pattern
	Limits []Limit   // the public ones that are the same for all clients

	Errors     []errors.Code    // codes with which any message may be answered
	CloseCodes []CloseCode      // with which the router closes connections
	Codecs     []string         // subprotocols of Options.Codecs, in the order of preference
	MaxBytes   map[string]int64 // Route.MaxMessageBytes of the types that differ; "" has the default
}

// A Message is a message type. The zero Message means that there is none.
type Message struct {
	Type string       // as MessageType returns it
	Go   reflect.Type // the type that was registered
}

// A Route is a message type that clients send.
type Route struct {
	Message

	Kind        Kind
	Description string        // of RouteDoc.Description
	Reply       Message       // of a call, and of a stream that declares one
	Item        reflect.Type  // of a stream; otherwise nil
	Progress    reflect.Type  // of a call that declares updates; otherwise nil
	Errors      []Error       // of RouteDoc.Errors and RouteDoc.ErrorDetails, by code
	Timeout     time.Duration // of a call or stream; 0 means none
}

// An Error is a code with which a message may be answered.
type Error struct {
	Code    errors.Code
	Details reflect.Type // of Error.Details; nil if they are not declared
}

// A Kind says how the server answers a message.
type Kind string

// The kinds of routes.
const (
	KindEvent  Kind = "event"  // not at all; see router.On
	KindCall   Kind = "call"   // with one reply or error; see router.RPC
	KindStream Kind = "stream" // with items, and then as a call; see router.Stream
)

// A Call is a call of the server and the reply with which a client answers it.
type Call struct {
	Message

	Reply Message
}

// A Topic is a pattern of topics.
type Topic struct {
	Pattern   string
	Messages  []string // types of TopicOptions.Messages; empty if they are not declared
	Subscribe bool     // whether clients can subscribe: TopicOptions.Authorize is set
	History   broker.Retention
	Presence  bool
	Hidden    bool // whether clients can subscribe without being present: TopicOptions.AuthorizeHidden is set
}

// A Limit is a rate limit that is the same for all clients. Options.AnnounceLimits decides
// which limits are public: Describe calls it with an empty ConnID for two invented users of different
// tenants and addresses, and leaves out what differs between them.
type Limit struct {
	Name     string
	Capacity int64         // tokens in a full bucket
	Refill   int64         // tokens that return every Per
	Per      time.Duration // whole milliseconds
	Scope    string        // "connection", "ip", "user", "tenant" or "server"
	Buckets  []Bucket
}

// A Bucket is one bucket of a limit, with the types that take tokens from it.
type Bucket struct {
	Costs map[string]int64 // by type; negative if the cost depends on the message
	Keep  map[string]int64 // tokens that a message must leave, by type; 0 is left out
}

// A CloseCode is a status with which the router closes connections; see the protocol, section 5.
type CloseCode struct {
	Code   int
	Reason string
}
