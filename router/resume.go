package router

import (
	"maps"
	"slices"
	"strconv"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/router/observe"
)

// This file continues a session on another connection. internal/session moves the session, and
// resume_topics.go subscribes its topics.

// validateResume returns an error if the request is invalid.
func validateResume(m protocol.Resume, maxTopics int) error {
	seen := map[string]bool{}
	for i, t := range m.Topics {
		switch {
		case seen[t.Topic]:
			return errors.InvalidField("topics."+strconv.Itoa(i)+".topic", "must not occur twice")
		case topicname.IsUserLog(t.Topic): // of any user
			return errors.InvalidField("topics."+strconv.Itoa(i)+".topic", "must not contain control characters")
		}
		seen[t.Topic] = true
	}
	delete(seen, "") // the log of the user is no subscription
	if len(seen) > maxTopics {
		return topicsExceeded(len(seen), maxTopics)
	}
	return nil
}

// handleResume resumes a session. The route is serial, so later messages of the connection find the
// topics subscribed.
func (r *Router) handleResume(ctx *Context, m protocol.Resume) (reply protocol.Resumed, err error) {
	defer func() { r.observe(observe.Event{Kind: observe.SessionResumed, Code: resumeCode(err)}) }()
	c := ctx.conn
	c.sub.Greet()
	c.checkExpiry() // as in greet
	if err := validateResume(m, r.opts.Limits.Topics); err != nil {
		return protocol.Resumed{}, err
	}
	r.nameUserLog(m.Topics, ctx.Identity().user())
	guard := ctx.guardAccess(nil) // before the list is read
	claim, err := r.sessions.Claim(ctx, &session.Request{
		Token: m.Token, CorrelationID: ctx.CorrelationID(), Conn: c.sessionConn(), Identity: c.identity.Load().ofSession(), Current: c.session().inner(),
		Admit: func(previous string, topics []string) (map[string]struct{}, error) {
			return ctx.admitResume(m, previous, topics)
		},
	})
	if err != nil {
		return protocol.Resumed{}, err
	}
	claim.Announce()
	s, err := c.continueSession(claim)
	if err != nil {
		return protocol.Resumed{}, err
	}
	topics := s.topicsToResume(m.Topics, claim)
	guard.Decide = func() error {
		s.withdraw(ctx, topics)
		reply.Topics = s.results(topics)
		ctx.SetReply(reply)
		return nil
	}
	s.resumeTopics(ctx, topics)
	reply.Topics = s.results(topics)
	_ = guard.Check() // never an error
	if err := ctx.Err(); err != nil {
		return protocol.Resumed{}, err // the member stays with the other connection until the client tries again
	}
	// Not before: the member would leave with the other connection, and join with this one.
	if lacking, ok := c.lacking(claim); ok {
		claim.AnnounceMoved(lacking)
	}
	reply.Session, reply.MemberID = s.grant(), s.MemberID()
	return reply, nil
}

// admitResume charges the client for the topics, and asks the application, which can drop some.
func (c *Context) admitResume(m protocol.Resume, previous string, topics []string) (dropped map[string]struct{}, err error) {
	if err := c.chargeTopics(m.Topics, topics); err != nil {
		return nil, err
	}
	onResume := c.conn.router.opts.Resume.OnResume
	if onResume == nil {
		return nil, nil
	}
	dropped = map[string]struct{}{}
	if err := onResume(c, ResumedSession{previous, slices.DeleteFunc(topics, topicname.IsUserLog), dropped}); err != nil {
		return nil, err
	}
	return dropped, c.Err()
}

// continueSession makes a claimed session that of the connection, unless another one has claimed it
// since. It ends the session that the connection had.
func (c *Conn) continueSession(claim *session.Claim) (*connSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := c.grantedLocked()
	if err := claim.Adopt(c.identity.Load().ofSession(), c.session().inner(), granted); err != nil {
		return nil, err
	}
	s := c.adoptSessionLocked(claim.Session, granted)
	for _, t := range c.sub.TopicsLocked() { // as the member of the session
		c.rejoinLocked(t, claim.Topics[t.Name].Info)
	}
	return s, nil
}

// lacking returns the topics that the session had and to which the connection has not been
// subscribed. It reports false if the connection has ended meanwhile, and with it all
// subscriptions.
func (c *Conn) lacking(claim *session.Claim) (topics []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil, false
	}
	for _, topic := range append(slices.Sorted(maps.Keys(claim.Topics)), claim.Ended...) {
		if c.sub.TopicLocked(topic) == nil {
			topics = append(topics, topic)
		}
	}
	return topics, true
}

// resumeCode returns the code of an observe.SessionResumed.
func resumeCode(err error) errors.Code {
	if _, ok := failure.AsType[*LimitExceeded](err); ok {
		return errors.ResourceExhausted
	}
	code := errors.CodeOf(err)
	if code != "" && !code.IsStandard() {
		return otherCode
	}
	return code
}

// releaseResumed sends what has been held until the answer to $ws:resume was queued.
func (c *Context) releaseResumed() {
	var joined []string
	if state := c.conn.extra().recovery.Load(); state != nil {
		joined, state.joined = state.joined, nil
	}
	for _, topic := range joined {
		c.conn.startTopic(topic)
	}
	c.conn.announceTopics(joined)
}
