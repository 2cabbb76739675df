package router

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
)

// ResumeOptions let clients continue their sessions on another connection, also on another node,
// after the connection or its node has been lost; see the protocol, section 12. The zero value
// disables sessions.
//
// A client that asks for a session receives a token, and presents it on its next connection. It gets
// back the subscriptions that handlers have made for it, with presence, and those that it presents
// itself, with what it has missed on topics with a History. Options.Authenticate must give the
// connection the same tenant and user. The previous connection, if it still exists, is closed with
// [StatusSuperseded].
//
// Sessions are kept by Options.Broker, which must be a broker.HistoryBroker; without a broker, they
// are in the memory of this process. While they cannot be stored, clients get no session.
type ResumeOptions struct {
	// Within is how long after the loss of its connection a client can resume its session: at least
	// a second, or 0 to disable sessions. The record of every session is stored again after a
	// quarter to a third of this time.
	Within time.Duration

	// OnResume is called before a session is resumed and its topics are subscribed, as a handler is:
	// after ingress functions and middleware, and with the context of the message. It may restore
	// what the application needs: values of the connection, for example. The client receives the
	// public part of the error; the session then remains as it was. The session may not be resumed
	// although OnResume returns nil, because another connection is faster or the store fails. If
	// nil, nothing is called.
	OnResume func(*Context, ResumedSession) error

	// OnSessionEnd is called when a session has ended for good, so that no client can resume it: on
	// the node of its last connection, at most two seconds late. A session that another connection
	// resumes goes on, on any node. It is not called if that node has ended or has been shut down
	// before, and perhaps later if the store does not answer. Calls run one at a time; OnClose of the
	// connection may run at the same time, and Conn.Resumable says there whether the session continues
	// to exist. If nil, nothing is called.
	OnSessionEnd func(SessionEnd)
}

// A ResumedSession describes a session that a client resumes.
type ResumedSession struct {
	ConnID string   // of the previous connection
	Topics []string // to which handlers had subscribed it, sorted

	dropped map[string]struct{}
}

// Drop ends what a handler has granted: the session continues without the topic, unless the client
// presents it and TopicOptions.Authorize permits it. Drop must be called by OnResume, before it returns.
// It has no effect on a topic that the session does not have.
func (s ResumedSession) Drop(topic string) { s.dropped[topic] = struct{}{} }

// minResumeWithin bounds how often the records of sessions are stored.
const minResumeWithin = time.Second

// enabledResume is the type of Router.resume: it has no methods, because the linker keeps those of the types of fields.
type enabledResume ResumeOptions

// enableSessions lets clients have sessions. It panics if an option is invalid, or if the broker cannot store them.
func (o ResumeOptions) enableSessions(r *Router) {
	switch {
	case o.Within == 0:
		return
	case o.Within < minResumeWithin:
		panic(fmt.Sprintf("router: Resume.Within is %v; it must be at least %v, or 0 to disable sessions", o.Within, minResumeWithin))
	}
	r.mustHaveHistories("Resume.Within", "stores no sessions")
	r.resume, r.openSession = enabledResume(o), r.members.OpenSession
	r.routes[protocol.TypeHello].afterAnswer = func(ctx *Context) { r.members.AnnounceTopics(&ctx.conn.member, nil) }
	protocolCall(r, r.handleResume).afterAnswer = func(ctx *Context) { r.members.StartResumed((*memberConn)(ctx.conn)) }
}

// resumes reports whether clients can have sessions.
func (r *Router) resumes() bool { return r.resume.Within > 0 }

// A SessionEnd says that a client can no longer resume a session; see ResumeOptions.OnSessionEnd.
type SessionEnd struct {
	ConnID   string // of the last connection of the session on this node
	Identity Identity
	Reason   SessionEndReason
	Option   string // that has ended it, if it is SessionLimited: "router.Limits.SessionsPerUser", for example
}

// A SessionEndReason says why a session has ended.
type SessionEndReason string

// The reasons.
const (
	SessionClosed  SessionEndReason = "closed"  // the client or the server has closed the connection for good
	SessionExpired SessionEndReason = "expired" // the client has not come back in time, its identity has expired, or the store has lost the record
	SessionRevoked SessionEndReason = "revoked" // by DisconnectUser, while the client was away
	SessionLimited SessionEndReason = "limited" // by Limits.SessionsPerUser or Limits.ConnsPerIP
)

// reportSessionEnd queues a call of ResumeOptions.OnSessionEnd.
func (r *Router) reportSessionEnd(c *Conn, reason session.EndReason) {
	if r.resume.OnSessionEnd == nil {
		return
	}
	end := SessionEnd{c.member.ID, c.Identity(), SessionEndReason(reason.String()), reason.Option()}
	r.hooks.Later.Add(func() { r.hooks.Call(context.Background(), "OnSessionEnd", func() { r.resume.OnSessionEnd(end) }) })
}
