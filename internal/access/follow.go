package access

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file applies what the log has, on every node.

// logTopic is the topic of the log. It is the name of no application's topic, because it contains a
// control character.
const logTopic = "\x00access"

// logRetention is what is kept of the log: about a megabyte.
//
//nolint:gochecknoglobals // never changed
var logRetention = broker.Retention{Messages: 10_000, Age: 24 * time.Hour}

// lastMessageWait bounds how long a connection stays open for messages that were sent to its user before.
const lastMessageWait = time.Second

// codeTryAgainLater closes connections of which it is unknown whether they must be closed (RFC 6455, section 7.4).
const codeTryAgainLater = 1013

// store adds a packet. It returns an error if other nodes may miss it.
func (n *Node) store(ctx context.Context, packet []byte) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entry := broker.Append{Topic: logTopic, Retention: logRetention, Durability: n.Durability, Packet: append(wire.AppendString(nil, n.log.node), packet...)}
	if _, err := n.Topics.Store(ctx, entry, envelope.Publication{}); err != nil {
		return failure.Join(err, n.Publish(packet))
	}
	_ = n.Publish(append([]byte{PacketStored}, packet...)) // for nodes without the log, while the option is introduced
	return nil
}

// apply handles an entry.
func (n *Node) apply(number uint32, own bool, packet []byte) {
	p, ok := ParsePacket(packet)
	switch {
	case !ok:
	case p.Kind == PacketDisconnect:
		n.applyDisconnect(p.User, number, session.End{Code: p.Code, Reason: p.Reason})
	case p.Kind == PacketRevocation && !own: // Revoke has done it here
		for _, c := range before(n.OfUser(p.User), number) {
			c.Revoke(p.Topics, p.Change)
		}
		n.revokeElsewhere(p.User, preceding(number), p.Topics)
	}
}

// applyDisconnect closes the connections of a user, after the messages that were sent to the user before.
func (n *Node) applyDisconnect(user session.User, number uint32, end session.End) {
	n.Away.Disconnected(present.User(user), number, end.Code, end.Reason)
	conns := before(n.OfUser(user), number)
	n.EndPresence(user, func(string) bool { return true })
	n.Away.EndAccess(present.User(user), preceding(number))
	n.Ended(host.AccessEnd{TenantID: user.TenantID, UserID: user.UserID, Before: preceding(number), Code: end.Code, Reason: end.Reason})
	if len(conns) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastMessageWait)
		defer cancel()
		_ = n.Topics.CatchUp(ctx, topicname.UserLog(user.TenantID, user.UserID)) // otherwise, the client does not receive them
		for _, c := range conns {
			c.Disconnect(end)
		}
	}()
}

// preceding reports which authentications were before an entry.
func preceding(number uint32) func(since uint32) bool {
	return func(since uint32) bool { return Precedes(since, number) }
}

// before returns the connections whose identity was authenticated before an entry.
func before(conns []Conn, number uint32) []Conn {
	return slices.DeleteFunc(conns, func(c Conn) bool {
		since, ok := c.Since()
		return !ok || !Precedes(since, number)
	})
}

// closeUnknown closes the connections of users who may have been disconnected without this node
// knowing it. The clients connect again.
func (n *Node) closeUnknown(number uint32) {
	conns := before(n.All(), number)
	for _, c := range conns {
		c.Close(UnknownEnd(len(conns)))
	}
	end := UnknownEnd(len(conns))
	n.Ended(host.AccessEnd{Before: preceding(number), Code: end.Code, Reason: end.Reason})
}

// UnknownEnd returns how one of several connections is closed of which it is unknown whether the user has lost the access.
// The reason has a random delay.
func UnknownEnd(conns int) session.End {
	payload := failure.Payload(&errors.Error{
		Code: errors.Unavailable, Message: "the access of the user must be checked again; connect again",
		RetryAfter: time.Millisecond + random.N(max(time.Second, time.Duration(conns)*time.Millisecond)),
	})
	return session.End{Code: codeTryAgainLater, Reason: wire.CloseReason(&payload)}
}
