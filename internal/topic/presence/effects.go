package presence

import (
	"time"

	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
)

// Effects are what the caller does after an event. What is in a slice is done in its order.
type Effects struct {
	Changes    []Change           // for the application; the feed has them
	SendFeed   bool               // the messages of Members.Next are sent after FeedDelay
	NodeIsBack string             // a node that has announced a member, or ""
	Released   []*present.Absence // of members that are not held any more
	Held       []Held             // members that are held from now on
	TakenOver  *present.Absence   // of a closed connection whose member another connection has, or nil
	Announce   []Announcement     // to the other nodes
}

// A Change is a member that has joined a topic or left it.
type Change struct {
	Member protocol.Member
	Joined bool
}

// A Held is a member that no node announces. Members.HoldEnded is the event when its time is up.
type Held struct {
	Member  *member
	Absence *present.Absence // whose Act the caller sets
	For     time.Duration
}

// An Announcement is a member that this node announces or, unless Joined is set, withdraws.
type Announcement struct {
	ID, Data string
	Joined   bool
}

// The delays of presence.
const (
	// TakeOverHold is how long a member stays that its node does not announce any more. All nodes agree
	// again within five seconds after a fault (internal/cluster/presence), so what has replaced it is
	// known by then.
	TakeOverHold = 6 * time.Second

	// FeedDelay is how long changes are collected for watchers. A node that leaves, or many clients that
	// connect at once, cause a few long messages instead of many short ones.
	FeedDelay = 50 * time.Millisecond
)
