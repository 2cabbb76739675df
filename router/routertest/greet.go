//go:build !js

package routertest

import "github.com/penstock-go/penstock/internal/protocol"

// A Welcome is the server's answer to the greeting; see docs/protocol.md.
type Welcome struct {
	ConnID                string           `json:"connId"`
	PingIntervalMs        int64            `json:"pingIntervalMs"`
	PongTimeoutMs         int64            `json:"pongTimeoutMs"`
	MaxMessageBytes       int64            `json:"maxMessageBytes"`
	MaxMessageBytesByType map[string]int64 `json:"maxMessageBytesByType"` // of the types that differ
	CallTimeoutMs         int64            `json:"callTimeoutMs"`
	CallTimeoutMsByType   map[string]int64 `json:"callTimeoutMsByType"` // of the types that differ; 0 means none
	Concurrency           int              `json:"concurrency"`
	Limits                []Limit          `json:"limits"`  // nil if the server announces none
	Session               *Session         `json:"session"` // nil unless the client asked for one
}

// A Session lets a client resume its session on another connection; see router.ResumeOptions.
type Session struct {
	Token          string `json:"token"`
	ResumeWithinMs int64  `json:"resumeWithinMs"`
}

// MessageType returns the type of the protocol.
func (Welcome) MessageType() string { return protocol.TypeWelcome }

// A Limit is a token bucket that the server announces: up to Capacity tokens, and Refill of them
// return every RefillMs milliseconds, one by one.
type Limit struct {
	Name     string   `json:"name"`
	Capacity int64    `json:"capacity"`
	Refill   int64    `json:"refill"`
	RefillMs int64    `json:"refillMs"`
	Scope    string   `json:"scope"`
	Buckets  []Bucket `json:"buckets"`
}

// A Bucket holds what messages take from one bucket and leave in it, by type. The cost is nil if
// it depends on the message.
type Bucket struct {
	Costs map[string]*int64 `json:"costs"`
	Keep  map[string]int64  `json:"keep"`
}

// Greet sends the greeting of the protocol and returns the answer. The connection then receives
// messages that the server sends only to clients which have greeted. An error fails the test.
func (c *Conn) Greet() Welcome {
	c.t.Helper()
	return Call[Welcome](c, protocol.Hello{})
}
