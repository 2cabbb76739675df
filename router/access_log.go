package router

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/accesslog"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/userpacket"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file applies what DisconnectUser and Revoke have ended, on all nodes, if Options.UserHistory is
// set. For connections that were being opened meanwhile, see recent_disconnects.go.

// An accessLog is the accesslog.Log of a router. Its entries are packets of DisconnectUser and Revoke.
// It is nil without Options.UserHistory.
type accessLog struct {
	router  *Router
	log     *accesslog.Log
	follows *sequencer.Sequencer
}

// accessTopic is the topic of the log. It is the name of no application's topic, because it contains a
// control character.
const accessTopic = "\x00access"

// accessHistory is kept of it: about a megabyte.
//
//nolint:gochecknoglobals // never changed
var accessHistory = History{Messages: 10_000, Age: 24 * time.Hour}

// lastMessageWait bounds how long DisconnectUser waits for messages that were sent to the user before.
const lastMessageWait = time.Second

// openAccessLog sets Router.access and follows the log, which may call the router at once.
func openAccessLog(r *Router) {
	a := &accessLog{router: r}
	a.log = accesslog.New(accesslog.Handler{Entry: a.apply, Unknown: a.closeUnknown})
	r.access = a
	a.follows = r.topics.Follow(accessTopic, accessHistory.retention(), sequencer.Sink{
		Deliver: func(p broker.Publication) { a.log.HandOver(p.Packet) }, Lost: a.lose,
	})
	a.follows.WhenAttached(func(broker.Position) { a.log.Attached() })
}

// lose handles the loss of entries. After a failover of the store, entries are lost only if it has
// acknowledged them just before, and this node was cut off at that moment, so that alone leaves
// nothing unknown.
func (a *accessLog) lose(l sequencer.Loss) {
	a.router.messagesLost(accessTopic, l.Messages())
	if l.Epoch == "" {
		a.log.Lose()
	}
}

// close ends the log. It does nothing if a is nil.
func (a *accessLog) close() {
	if a != nil {
		a.follows.Close()
	}
}

// store adds a packet. It returns an error if other nodes may miss it.
func (a *accessLog) store(ctx context.Context, packet []byte) error {
	ctx, cancel := context.WithTimeout(ctx, revocationTimeout)
	defer cancel()
	entry := broker.Append{
		Topic: accessTopic, Retention: accessHistory.retention(), Durability: a.router.opts.UserHistory.Durability, Packet: a.log.Entry(packet),
	}
	if _, err := a.router.topics.Store(ctx, entry); err != nil {
		return failure.Join(err, a.router.publishToNodes(func() []byte { return packet }))
	}
	// For nodes without the log, while the option is introduced.
	_ = a.router.publishToNodes(func() []byte { return append([]byte{userpacket.Stored}, packet...) })
	return nil
}

// storeDisconnect is DisconnectUser.
func (a *accessLog) storeDisconnect(user registry.User, code StatusCode, reason string) (connsOnThisNode int, err error) {
	r := a.router
	code = StatusCode(validCode(code))
	connsOnThisNode = len(r.conns.OfUser(user))
	ctx, cancel := context.WithTimeout(context.Background(), revocationTimeout)
	defer cancel()
	err = r.sessions.EndSessions(ctx, session.User(user), session.End{Code: int(code), Reason: reason})
	stored := a.store(ctx, userpacket.NewDisconnect(session.User(user), int(code), reason))
	if stored != nil {
		r.disconnect(user, code, reason)
	}
	return connsOnThisNode, failure.Join(err, stored)
}

// apply handles an entry.
func (a *accessLog) apply(number uint32, own bool, packet []byte) {
	p, ok := userpacket.Parse(packet)
	if !ok {
		return
	}
	user := registry.User(p.User)
	switch {
	case p.Kind == userpacket.Disconnect:
		a.disconnect(user, number, CloseError{StatusCode(p.Code), p.Reason})
	case p.Kind == userpacket.Revocation && !own: // Revoke has done it here
		a.router.revokeConns(before(a.router.conns.OfUser(user), number), p.Change, p.Topics)
		a.router.revokeElsewhere(user, preceding(number), p.Topics)
	}
}

// disconnect closes the connections of a user, after the messages that were sent to the user before.
func (a *accessLog) disconnect(user registry.User, number uint32, end CloseError) {
	r := a.router
	r.disconnects.Add(user, number, end)
	conns := before(r.conns.OfUser(user), number)
	r.sessions.EndWaiting(session.User(user), preceding(number))
	r.endAbsence(user, func(string) bool { return true })
	r.disconnectElsewhere(user, preceding(number), end)
	if len(conns) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastMessageWait)
		defer cancel()
		_ = r.topics.CatchUp(ctx, userLogName(user)) // otherwise, the client does not receive them
		for _, c := range conns {
			c.discardSession()
			c.leaveForGood()
			c.Close(end.Code, end.Reason)
		}
	}()
}

// preceding reports which authentications were before an entry.
func preceding(number uint32) func(since uint32) bool {
	return func(since uint32) bool { return accesslog.Precedes(since, number) }
}

// before returns the connections whose identity was authenticated before an entry.
func before(conns []*Conn, number uint32) []*Conn {
	return slices.DeleteFunc(conns, func(c *Conn) bool {
		id := c.identity.Load()
		return id == nil || id.UserID == "" || !accesslog.Precedes(id.since, number)
	})
}

// closeUnknown closes the connections of users who may have been disconnected without this node
// knowing it. The clients connect again.
func (a *accessLog) closeUnknown(number uint32) {
	conns := before(a.router.conns.List(), number)
	for _, c := range conns {
		c.Close(StatusTryAgainLater, unknownReason(len(conns)))
	}
	a.router.disconnectElsewhere(registry.User{}, preceding(number), CloseError{StatusTryAgainLater, unknownReason(len(conns))})
}

// unknownReason returns the reason of a close frame, with a random delay for one of several clients.
func unknownReason(clients int) string {
	payload := failure.Payload(&errors.Error{
		Code: errors.Unavailable, Message: "the access of the user must be checked again; connect again",
		RetryAfter: time.Millisecond + random.N(max(minReconnectSpread, time.Duration(clients)*time.Millisecond)),
	})
	return wire.CloseReason(&payload)
}
