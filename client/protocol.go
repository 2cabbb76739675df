//go:build !js

package client

import (
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/wire"
)

// The messages of the protocol that the client sends and receives; see docs/protocol.md.

const (
	typeIdentityExpiring = "$ws:identity-expiring"
	typeSubscribed       = "$ws:subscribed"
	typeUnsubscribed     = "$ws:unsubscribed"
	typePosition         = "$ws:position"
	typeState            = "$ws:state"
	typePresence         = "$ws:presence"
	typeResumed          = "$ws:resumed"
)

type hello struct {
	Session bool `json:"session,omitzero"`
}

func (hello) MessageType() string { return wire.TypeHello }

type welcome struct {
	ConnID       string         `json:"connId"`
	Concurrency  int            `json:"concurrency"`
	Limits       []limit        `json:"limits"`
	ContractHash string         `json:"contractHash"`
	Session      *sessionTicket `json:"session"`
}

// A sessionTicket is the right to resume a session.
type sessionTicket struct {
	Token          string `json:"token"`
	ResumeWithinMs int64  `json:"resumeWithinMs"`
}

type limit struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	Refill   int64  `json:"refill"`
	RefillMs int64  `json:"refillMs"`
	Scope    string `json:"scope"`
	Buckets  []struct {
		Costs map[string]*int64 `json:"costs"`
		Keep  map[string]int64  `json:"keep"`
	} `json:"buckets"`
}

type authenticate struct {
	Token string `json:"token"`
}

func (authenticate) MessageType() string { return "$ws:auth" }

type subscribe struct {
	Topic     string `json:"topic"`
	Presence  bool   `json:"presence,omitzero"`
	Positions bool   `json:"positions,omitzero"`
	State     bool   `json:"state,omitzero"`
	Epoch     string `json:"epoch,omitzero"`
	Offset    uint64 `json:"offset,omitzero"`
}

func (subscribe) MessageType() string { return "$ws:subscribe" }

type unsubscribe struct {
	Topic string `json:"topic"`
}

func (unsubscribe) MessageType() string { return "$ws:unsubscribe" }

// A subscribed is the answer to subscribe, an element of the answer to resume, or the notice of a
// subscription that the server has made.
type subscribed struct {
	Topic     string       `json:"topic"`
	Members   []Member     `json:"members"`
	Epoch     string       `json:"epoch"`
	Offset    uint64       `json:"offset"`
	Recovered bool         `json:"recovered"`
	Ended     *Position    `json:"ended"`
	State     *int         `json:"state"`
	More      bool         `json:"more"`
	Error     jsonv2.Value `json:"error"`
}

// A stateEnd is the payload of $ws:state.
type stateEnd struct {
	Topic string `json:"topic"`
}

// An unsubscribed is the payload of $ws:unsubscribed that the server sends by itself.
type unsubscribed struct {
	Topic string       `json:"topic"`
	Error jsonv2.Value `json:"error"`
}

// A moved is the payload of $ws:position.
type moved struct {
	Topic  string `json:"topic"`
	Epoch  string `json:"epoch"`
	Offset uint64 `json:"offset"`
	Lost   *struct {
		From uint64 `json:"from"`
		To   uint64 `json:"to"`
	} `json:"lost"`
	Ended *Position `json:"ended"`
	Reset bool      `json:"reset"`
}

type presenceChange struct {
	Topic  string   `json:"topic"`
	Joined []Member `json:"joined"`
	Left   []Member `json:"left"`
}

type resume struct {
	Token  string      `json:"token"`
	Topics []subscribe `json:"topics,omitempty"`
}

func (resume) MessageType() string { return "$ws:resume" }

type resumed struct {
	Session  sessionTicket `json:"session"`
	MemberID string        `json:"memberId"`
	Topics   []subscribed  `json:"topics"`
}

// replyTypeOf returns the type of the reply to a call of the protocol.
func replyTypeOf(m Message) string {
	switch m.(type) {
	case hello:
		return wire.TypeWelcome
	case authenticate:
		return "$ws:authenticated"
	case subscribe:
		return typeSubscribed
	case unsubscribe:
		return typeUnsubscribed
	default:
		return typeResumed
	}
}
