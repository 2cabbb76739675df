package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file handles the messages by which clients subscribe to topics themselves, and counts the
// subscriptions of a connection.

// registerTopicRoutes registers the messages for topics.
func (r *Router) registerTopicRoutes() {
	subscribe := protocolCall(r, r.handleSubscribe)
	subscribe.work = (*Conn).subscribeWork
	subscribe.afterAnswer = func(ctx *Context) {
		ctx.conn.startTopic(ctx.message.(*protocol.Subscribe).Topic)
	}
	protocolCall(r, r.handleUnsubscribe)
}

// startTopic sends what is held until the client has the answer to its request for a topic.
func (c *Conn) startTopic(name string) {
	c.router.topics.StartFeed(name, &c.sub)
	c.sendHeld(name)
}

// handleSubscribe subscribes a client that TopicOptions.Authorize permits to.
func (r *Router) handleSubscribe(ctx *Context, m protocol.Subscribe) (reply protocol.Subscribed, err error) {
	if err := topicname.Check(m.Topic); err != nil {
		return protocol.Subscribed{}, err
	}
	guard := ctx.guardAccess(func() (err error) {
		ctx.conn.unsubscribeClient(m.Topic) // the user may have lost the access while Authorize was running
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
	if err := ctx.authorizeTopic(p, m.Topic); err != nil {
		return protocol.Subscribed{}, err
	}
	return ctx.conn.subscribeAuthorized(ctx, p, m, topic.JoinRequest{})
}

// authorizeTopic returns an error unless the client may subscribe to a topic of a pattern.
func (c *Context) authorizeTopic(p *topic.Pattern, topic string) error {
	r := c.conn.router
	authorize := r.topicOptions[p].Authorize
	if r.hints != nil && authorize == nil {
		r.hintSubscription(p, topic)
	}
	if p.Text == "" {
		return errors.Errorf(errors.NotFound, "topic %q does not exist", topic)
	}
	if authorize == nil {
		return errNotAuthorized
	}
	if err := authorize(c, TopicMatch{topic, p}); err != nil {
		return err
	}
	return c.Err() // the call may have ended while Authorize was running
}

// subscribeAuthorized subscribes a client to a topic of pattern p. It waits for the store if the
// client asks for positions, with the grant of req and what reads its missed publications. Nothing about
// the topic is sent before startTopic is called.
func (c *Conn) subscribeAuthorized(ctx context.Context, p *topic.Pattern, m protocol.Subscribe, req topic.JoinRequest) (protocol.Subscribed, error) {
	reply := protocol.Subscribed{Topic: m.Topic}
	own := c.router.resumes() && !c.Subscribed(m.Topic)
	if p.HasHistory() && (m.Positions || m.State || m.Epoch != "") {
		c.sub.ExpectPositions()
		req.Since, req.State = broker.Position{Epoch: m.Epoch, Offset: m.Offset}, m.State
		result, err := c.subscribeSince(ctx, m.Topic, req)
		if err != nil {
			return protocol.Subscribed{}, err
		}
		addRecovery(&reply, result)
		c.chargeWork((result.Read + result.State) / workPerMessage)
	}
	if m.Presence && !p.Presence && c.router.hints != nil && c.sub.HasGreeted() { // tools ask for everything
		c.router.hints.NoPresence(p.Text, p.Position)
	}
	members, err := c.subscribeFromNow(ctx, m.Topic, m.Presence && p.Presence, reply.Recovery != nil)
	reply.Members = members
	c.chargeWork(len(members) / workPerMessage)
	if err == nil && own {
		c.markOwn(m.Topic)
	}
	return reply, err
}

// subscribeFromNow is subscribeClient, and waits until the connection receives everything that is published from then
// on.
func (c *Conn) subscribeFromNow(ctx context.Context, name string, presence, positions bool) ([]protocol.Member, error) {
	subscribed := c.Subscribed(name)
	t, members, err := c.subscribeClient(name, presence, positions)
	if err != nil {
		return nil, err
	}
	if err = c.awaitStart(ctx, t); err != nil && !subscribed {
		c.unsubscribeClient(name)
	}
	return members, err
}

// errNotAuthorized refuses a subscription by a client.
var errNotAuthorized = &errors.Error{Code: errors.PermissionDenied, Message: "clients must not subscribe to this topic"}

func (r *Router) handleUnsubscribe(ctx *Context, m protocol.Unsubscribe) (protocol.Unsubscribed, error) {
	if err := topicname.Check(m.Topic); err != nil {
		return protocol.Unsubscribed{}, err
	}
	ctx.conn.unsubscribeClient(m.Topic)
	return protocol.Unsubscribed{Topic: m.Topic}, nil
}

// unsubscribeClient is Unsubscribe for a client that receives an answer.
func (c *Conn) unsubscribeClient(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsubscribeLocked(topic)
}

func (c *Conn) unsubscribeLocked(topic string) {
	if s := c.session(); s != nil {
		s.drop(topic)
	}
	c.leaveTopicLocked(topic)
}

// leaveTopic ends a subscription that the session keeps.
func (c *Conn) leaveTopic(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session(); s != nil {
		delete(s.unannounced, topic)
	}
	c.leaveTopicLocked(topic)
}

func (c *Conn) leaveTopicLocked(topic string) {
	c.unmarkOwn(topic)
	c.router.topics.UnsubscribeLocked(topic, &c.sub, !c.goesOn(topic))
}

// subscribeClient is Subscribe, unless the connection is already subscribed with positions. If
// presence is set, the connection also receives the changes of the presence from then on, and
// subscribeClient returns the members; otherwise, it stops receiving them.
func (c *Conn) subscribeClient(name string, presence, positions bool) (*topic.Topic, []protocol.Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if positions && c.sub.TopicLocked(name) == nil {
		return nil, nil, topic.ErrUnsubscribed
	}
	t, err := c.subscribeLocked(name)
	if err != nil {
		return nil, nil, err
	}
	if presence {
		return t, t.Watch(&c.sub), nil
	}
	t.Unwatch(&c.sub)
	return t, nil, nil
}

// subscribeLocked adds a subscription, and joins if the topic's pattern says so.
func (c *Conn) subscribeLocked(name string) (*topic.Topic, error) {
	t, err := c.addSubscriptionLocked(name, false)
	if err == nil && t.Pattern.Presence {
		c.joinLocked(t, "")
	}
	return t, err
}

// addSubscriptionLocked subscribes c to a topic unless it is subscribed already, and returns the
// topic. If silent is set, a new subscription receives nothing before it is activated.
func (c *Conn) addSubscriptionLocked(name string, silent bool) (*topic.Topic, error) {
	if c.left {
		return nil, errClosed
	}
	return c.router.topics.SubscribeLocked(name, &c.sub, silent)
}

// topicsExceeded reports n subscriptions of one connection, where limit are allowed.
func topicsExceeded(n, limit int) error {
	return &LimitExceeded{Kind: LimitTopics, Observed: int64(n), Limit: int64(limit), RetryAfter: errors.Never}
}
