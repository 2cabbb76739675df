package router

import (
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/member"
)

// A SubscribeOption changes one call of [Conn.Subscribe]: [Present], [Hidden], [Since], [Last] and
// [CurrentState] return one. They can be combined; of Present and Hidden, the last one applies.
type SubscribeOption struct {
	request  member.Request
	recovery *Recovery // receives the result; may be nil
}

// Present makes the connection present in the topic, until it unsubscribes or is closed:
// [Router.Presence] lists it on every node with a connection that is present in the topic. Info is for
// the application, a display name for example, with up to 1024 bytes; Subscribe returns
// INVALID_ARGUMENT if it is longer. For a connection that is present already, it has no effect and
// keeps the info, unless info is not empty: the member then leaves and joins with the new one.
func Present(info string) SubscribeOption {
	return SubscribeOption{request: member.Request{Present: true, Info: info}}
}

// Hidden subscribes the connection without making it present, even with TopicOptions.Presence. One that is present leaves.
// It stays hidden, also when the session is resumed, until Subscribe is called without Hidden or the client subscribes itself.
func Hidden() SubscribeOption {
	return SubscribeOption{request: member.Request{Hidden: true}}
}

// Since begins the subscription to a topic with a History behind a position that the client has
// presented; the zero Position begins now. The client receives what it has missed, and then every
// publication, with the topic and the offset in meta if it has greeted, has asked for positions, or has
// presented one; see the protocol, section 10. The result is stored in recovery, unless that is nil or
// Subscribe returns an error.
//
// The client receives nothing before Subscribe has checked the position. While the store cannot be
// read, [Context.Subscribe] waits until the context is done, and for at most Timeouts.Call if that has
// no deadline, as that of an event. Subscribe does not call TopicOptions.Authorize. It returns
// FAILED_PRECONDITION if the topic has no History, the context's cause, and CANCELLED if the connection
// unsubscribes meanwhile.
func Since(position broker.Position, recovery *Recovery) SubscribeOption {
	return SubscribeOption{request: member.Request{Join: (*member.Node).JoinHistory, Since: position}, recovery: recovery}
}

// Last is [Since] for a client that needs the latest messages of the topic, such as when it visits a room for the first
// time: it first receives up to n of them, and then every publication; Recovery.Position is before the first one. There are
// fewer if the history has no more, and at most as many as half of Limits.QueueMessages and the room in the send queue
// permit. Together with Since, they are sent only if the client cannot receive what it has missed. Together with
// CurrentState, Last has no effect.
//
// Subscribe returns INVALID_ARGUMENT if n is negative, and UNAVAILABLE if the topic changes too much while it is read.
func Last(n int, recovery *Recovery) SubscribeOption {
	return SubscribeOption{request: member.Request{Join: (*member.Node).JoinHistory, Last: n}, recovery: recovery}
}

// CurrentState is [Since] for a client that needs the current state of the topic: the client first
// receives the latest message of each conflation key, as many as Recovery.State, in the order of their
// offsets, and then every publication after Recovery.Position. A key that is removed meanwhile is
// either not in the state, or the client receives its removal. Together with Since, the state is sent
// only if the client cannot receive what it has missed.
//
// A state of any size can be joined. If it is larger than about 128 KiB, or has no room in the send
// queue, Recovery.More is true, and the other keys follow between the publications, as fast as the
// client reads, after Subscribe has returned: see the protocol, section 10. If the store cannot be read
// for Timeouts.Call or fails over meanwhile, or if the client makes no room for ten minutes, the
// subscription ends, and the client receives $ws:unsubscribed with the error.
//
// Subscribe also returns UNAVAILABLE if the topic changes too much while its state is read. The
// connection is then subscribed only if it was before.
func CurrentState(recovery *Recovery) SubscribeOption {
	return SubscribeOption{request: member.Request{Join: (*member.Node).JoinHistory, State: true}, recovery: recovery}
}

// subscribeOptions combines options.
func subscribeOptions(opts []SubscribeOption) (all SubscribeOption) {
	for _, o := range opts {
		all.request.Add(&o.request)
		if o.recovery != nil {
			all.recovery = o.recovery
		}
	}
	return all
}

// A Recovery says how a subscriber of a topic with a History continues; see [Since].
type Recovery struct {
	// Position is that behind which the subscriber receives every publication, in order: first
	// those that it has missed, if Recovered is true, or the latest ones (see [Last]), and then new ones.
	Position broker.Position

	// Recovered is false if the history does not reach back to the subscriber's position, or too
	// much was missed. The client must then load its state.
	Recovered bool

	// Ended is set if the epoch of the subscriber's position has ended: publications of that epoch
	// with higher offsets than Ended.Offset, if there were any, are lost, even if the subscriber has
	// received them.
	Ended *broker.Position

	// State is how many publications the client receives first, with the current state; see
	// [CurrentState].
	State int

	// More is true if other publications of the state follow later, between new ones.
	More bool
}
