package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/access"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/member"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file connects sessions with their connections. internal/session decides what happens with a
// session; internal/member keeps its subscriptions, and resume.go continues it on another connection.

// maxSessionBytes bounds the record of a session: of each topic about 100 bytes, the name and the info.
const maxSessionBytes = 128 << 10

// initSessions creates the sessions of the router.
func (r *Router) initSessions() {
	r.sessions = session.New(session.Config{
		Within: r.resume.Within, MaxBytes: maxSessionBytes, Store: r.histories,
		Away: r.away, WatchesEnds: r.resume.OnSessionEnd != nil, Publish: r.publishSessionPacket,
	})
	r.members = member.Node{
		Topics: &r.topics, Sessions: r.sessions, Formats: &r.formats,
		Within: r.resume.Within, Timeout: r.opts.Timeouts.Call,
		Authorizes: func(p *topic.Pattern) bool { return r.topicOptions[p].authorize != nil },
		Inspect:    inspector.Inspect,
		TooLarge: func(bytes int) error {
			return &LimitExceeded{Kind: LimitSession, Observed: int64(bytes), Limit: maxSessionBytes, RetryAfter: errors.Never}
		},
	}
}

// publishSessionPacket publishes a packet to the node of a connection, or to all, which notice a loss later.
func (r *Router) publishSessionPacket(kind session.Packet, owner string, packet []byte) {
	first := byte(access.PacketSessionClaimed)
	if kind == session.PacketMoved {
		first = access.PacketSessionMoved
	}
	_ = r.asks.PublishToNodeOf(owner, append([]byte{first}, packet...))
}

// A memberConn is a connection as its member needs it.
type memberConn Conn

// Member returns the part of the connection that topics and sessions know.
func (c *memberConn) Member() *member.Member { return &c.member }

// Identity returns the current identity.
func (c *memberConn) Identity() session.Identity { return c.identity.Load().ofSession() }

// Context returns the context of the connection.
func (c *memberConn) Context() context.Context { return &c.ctx }

// Charge charges what a request has cost more than an ordinary message.
func (c *memberConn) Charge(publications int) {
	if messages := publications / workPerMessage; messages > 0 {
		limits, now := &c.router.opts.Limits, c.router.sinceStart(time.Now())
		c.rate.Owe(registry.Rate(limits.MessagesPerConn), now, messages)
		if c.address != nil {
			c.address.Messages.Owe(registry.Rate(limits.MessagesPerIP), now, messages)
		}
	}
}

// ReportState reports an error as that of the subscription.
func (c *memberConn) ReportState(f *failure.Failure) {
	(*Conn)(c).reportLate(&c.ctx, protocol.TypeSubscribe, f)
}

// Session returns the connection as a session needs it.
func (c *memberConn) Session() *session.Conn {
	return &session.Conn{ID: c.member.ID, Address: rules.PrefixOf(c.ip), Act: (*Conn)(c).actForSession}
}

func (id *connIdentity) ofSession() session.Identity {
	if id == nil {
		return session.Identity{}
	}
	return session.Identity{User: session.User(id.user()), ExpiresAt: id.ExpiresAt, Since: id.since}
}

// Resumable reports whether the connection has a session that its client can resume on another
// connection: in Options.OnClose, whether the client may come back. It is false once the session
// has ended, or belongs to another connection.
func (c *Conn) Resumable() bool {
	s := c.member.Session()
	return s != nil && !s.IsOver()
}

// actForSession is session.Conn.Act.
func (c *Conn) actForSession(s *session.Session, a session.Action) {
	switch a.Kind {
	case session.StopServing:
		c.draining.CompareAndSwap(notDraining, drainingSuperseded)
		time.AfterFunc(supersededWait, func() {
			if s.TakenOver() {
				c.closeSuperseded()
			}
		})
	case session.GiveUp:
		c.drainSuperseded()
	case session.LeaveTopics:
		c.router.members.LeaveTopics(&c.member, a.Topics)
	case session.ReportEnd:
		c.router.reportSessionEnd(c, a.Reason)
	case session.EndAccess:
		c.endAccess(s, a.Revoked)
	}
}

// endAccess ends the subscriptions to topics to which the user has lost access without the session
// knowing it, or the connection.
func (c *Conn) endAccess(s *session.Session, revoked session.Revoked) {
	switch end := c.router.members.EndAccess(&c.member, s, revoked); {
	case end == nil:
	case end.Code == 0:
		(*accessConn)(c).Close(access.UnknownEnd(1))
	default:
		c.Close(StatusCode(end.Code), end.Reason)
	}
}
