package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// This file handles the messages by which clients subscribe to topics themselves, and counts the
// subscriptions of a connection.

// registerTopicRoutes registers the messages for topics.
func (r *Router) registerTopicRoutes() {
	subscribe := protocolCall(r, r.topics.handleSubscribe)
	subscribe.work = (*Conn).subscribeWork
	subscribe.afterAnswer = func(ctx *Context) {
		topic := ctx.message.(*protocol.Subscribe).Topic
		r.topics.startFeed(topic, ctx.conn)
		r.topics.sendHeld(topic, ctx.conn)
	}
	protocolCall(r, r.topics.handleUnsubscribe)
}

// handleSubscribe subscribes a client that TopicOptions.Authorize permits to.
func (ts *topics) handleSubscribe(ctx *Context, m protocol.Subscribe) (protocol.Subscribed, error) {
	if err := checkTopic(m.Topic); err != nil {
		return protocol.Subscribed{}, err
	}
	p, c := ts.patternOf(m.Topic), ctx.conn
	for {
		before := c.revocations.Load()
		if err := p.authorize(ctx, m.Topic); err != nil {
			return protocol.Subscribed{}, err
		}
		reply, err := c.subscribeAuthorized(ctx, p, m, joinRequest{})
		if err != nil || c.revocations.Load() == before {
			return reply, err
		}
		c.unsubscribeClient(m.Topic) // the user may have lost the access while Authorize was running
	}
}

// authorize returns an error unless the client may subscribe to a topic of the pattern.
func (p *topicPattern) authorize(ctx *Context, topic string) error {
	if ctx.conn.router.opts.Development && p.opts.Authorize == nil {
		ctx.conn.router.hintSubscription(p, topic)
	}
	if p == undeclared {
		return errors.Errorf(errors.NotFound, "topic %q does not exist", topic)
	}
	if p.opts.Authorize == nil {
		return errNotAuthorized
	}
	if err := p.opts.Authorize(ctx, TopicMatch{topic, p}); err != nil {
		return err
	}
	return ctx.Err() // the call may have ended while Authorize was running
}

// subscribeAuthorized subscribes a client to a topic of pattern p. It waits for the store if the
// client asks for positions, with the grant of req and what reads its missed publications. Nothing about
// the topic is sent before topics.startFeed and topics.sendHeld are called.
func (c *Conn) subscribeAuthorized(ctx context.Context, p *topicPattern, m protocol.Subscribe, req joinRequest) (protocol.Subscribed, error) {
	reply := protocol.Subscribed{Topic: m.Topic}
	own := c.router.resumes() && !c.Subscribed(m.Topic)
	if p.opts.History.enabled() && (m.Positions || m.State || m.Epoch != "") {
		c.expectPositions()
		req.since, req.state = broker.Position{Epoch: m.Epoch, Offset: m.Offset}, m.State
		result, err := c.subscribeSince(ctx, m.Topic, req)
		if err != nil {
			return protocol.Subscribed{}, err
		}
		addRecovery(&reply, result)
		c.chargeWork((result.read + result.State) / workPerMessage)
	}
	members, err := c.subscribeClient(m.Topic, m.Presence && p.opts.Presence, reply.Recovery != nil)
	reply.Members = protocolMembers(members)
	c.chargeWork(len(members) / workPerMessage)
	if err == nil && own {
		c.markOwn(m.Topic)
	}
	return reply, err
}

// errNotAuthorized rejects a subscription by a client.
var errNotAuthorized = &errors.Error{Code: errors.PermissionDenied, Message: "clients must not subscribe to this topic"}

func (ts *topics) handleUnsubscribe(ctx *Context, m protocol.Unsubscribe) (protocol.Unsubscribed, error) {
	if err := checkTopic(m.Topic); err != nil {
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
		s.removeTopic(topic)
	}
	c.unmarkOwn(topic)
	if t := c.topics.find(topic); t != nil {
		c.topics.remove(t)
		c.router.topics.remove(t, c)
	}
}

// subscribeClient is Subscribe, unless the connection is already subscribed with positions. If presence is set, the connection also receives the changes of
// the presence from then on, and subscribeClient returns the members; otherwise, it stops receiving
// them.
func (c *Conn) subscribeClient(topic string, presence, positions bool) ([]Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if positions && c.topics.find(topic) == nil {
		return nil, errUnsubscribed
	}
	t, err := c.subscribeLocked(topic)
	if err != nil {
		return nil, err
	}
	if presence {
		return t.watch(c), nil
	}
	t.unwatch(c)
	return nil, nil
}

// subscribeLocked adds a subscription, and joins if the topic's pattern says so.
func (c *Conn) subscribeLocked(name string) (*topic, error) {
	t, err := c.addSubscriptionLocked(name, false)
	if err == nil && t.pattern.opts.Presence {
		c.router.topics.joinLocked(t, c, "")
	}
	return t, err
}

// addSubscriptionLocked subscribes c to a topic unless it is subscribed already, and returns the
// topic. If silent is set, a new subscription receives nothing before it is activated.
func (c *Conn) addSubscriptionLocked(name string, silent bool) (*topic, error) {
	if c.left {
		return nil, errClosed
	}
	if t := c.topics.find(name); t != nil {
		return t, nil
	}
	if err := checkTopic(name); err != nil {
		return nil, err
	}
	if n, limit := len(c.topics.named())+1, c.router.opts.Limits.Topics; n > limit {
		return nil, topicsExceeded(n, limit)
	}
	p := c.router.topics.patternOf(name)
	if n, limit := c.topics.countOf(p)+1, p.opts.MaxPerConn; limit != 0 && n > limit {
		return nil, topicsExceeded(n, limit)
	}
	return c.router.topics.addLocked(name, p, c, silent), nil
}

// addTopicLocked adds a topic to the connection's.
func (c *Conn) addTopicLocked(t *topic) {
	if c.topics == nil {
		c.topics = new(subscriptions)
	}
	c.topics.add(t)
}

// topicsExceeded reports n subscriptions of one connection, where limit are allowed.
func topicsExceeded(n, limit int) error {
	return &LimitExceeded{Kind: LimitTopics, Observed: int64(n), Limit: int64(limit), RetryAfter: errors.Never}
}
