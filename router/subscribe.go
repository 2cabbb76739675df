package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file handles the messages by which clients subscribe to topics themselves.

// registerTopicRoutes registers the messages for topics.
func (r *Router) registerTopicRoutes() {
	subscribe := protocolCall(r, r.handleSubscribe)
	subscribe.work = (*Conn).subscribeWork
	subscribe.afterAnswer = func(ctx *Context) {
		if r.startTopic != nil {
			r.startTopic((*memberConn)(ctx.conn), ctx.message.(*protocol.Subscribe).Topic)
		}
	}
	protocolCall(r, r.handleUnsubscribe)
}

// handleSubscribe subscribes a client that TopicOptions.Authorize permits to.
func (r *Router) handleSubscribe(ctx *Context, m protocol.Subscribe) (reply protocol.Subscribed, err error) {
	if err := topicname.Check(m.Topic); err != nil {
		return protocol.Subscribed{}, err
	}
	guard := ctx.guardAccess(func() (err error) {
		r.members.Leave(&ctx.conn.member, m.Topic, false) // the user may have lost the access while Authorize was running
		reply, err = r.authorizeAndSubscribe(ctx, m)
		ctx.SetReply(reply)
		return err
	})
	if reply, err = r.authorizeAndSubscribe(ctx, m); err == nil {
		err = guard.Check() // and before the answer, which has the members and follows what Revoke has sent
	}
	return reply, err
}

func (r *Router) authorizeAndSubscribe(ctx *Context, m protocol.Subscribe) (protocol.Subscribed, error) {
	p := r.topics.PatternOf(m.Topic)
	if err := ctx.authorizeTopic(p, &m); err != nil {
		return protocol.Subscribed{}, err
	}
	return r.subscribeClient(ctx.context(), (*memberConn)(ctx.conn), p, m, topic.JoinRequest{})
}

// authorizeTopic returns an error unless the client may subscribe to a topic of a pattern.
func (c *Context) authorizeTopic(p *topic.Pattern, m *protocol.Subscribe) error {
	r := c.conn.router
	o, match := r.topicOptions[p], TopicMatch{m.Topic, p}
	switch {
	case p.Text == "":
		if r.hints != nil {
			r.hints.NoPattern(m.Topic)
		}
		return errors.Errorf(errors.NotFound, "topic %q does not exist", m.Topic)
	case o.authorize == nil:
		if r.hints != nil {
			r.hints.NoAuthorize(p.Text, p.Position)
		}
		return errNotAuthorized
	case m.Hidden && o.authorizeHidden == nil:
		return errNotHidden
	}
	err := o.authorize(c, match)
	if err == nil && m.Hidden {
		err = o.authorizeHidden(c, match)
	}
	if err != nil {
		return err
	}
	if r.hints != nil && m.Presence && !p.Presence && c.conn.member.HasGreeted() { // tools ask for everything
		r.hints.NoPresence(p.Text, p.Position)
	}
	return c.Err() // the call may have ended while Authorize was running
}

// These refuse a subscription by a client.
var (
	errNotAuthorized = &errors.Error{Code: errors.PermissionDenied, Message: "clients must not subscribe to this topic"}
	errNotHidden     = &errors.Error{Code: errors.PermissionDenied, Message: "clients must not subscribe to this topic without being present"}
)

func (r *Router) handleUnsubscribe(ctx *Context, m protocol.Unsubscribe) (protocol.Unsubscribed, error) {
	if err := topicname.Check(m.Topic); err != nil {
		return protocol.Unsubscribed{}, err
	}
	r.members.Leave(&ctx.conn.member, m.Topic, false)
	return protocol.Unsubscribed{Topic: m.Topic}, nil
}

// topicsExceeded reports n subscriptions of one connection, where the limit of an option is exceeded.
func topicsExceeded(n, limit int, option string) error {
	return &LimitExceeded{Kind: LimitTopics, Option: option, Observed: int64(n), Limit: int64(limit), RetryAfter: errors.Never}
}
