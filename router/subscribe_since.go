package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file subscribes clients to topics with a History.

// A Recovery says how a subscriber of a topic with a History continues; see [Since].
type Recovery struct {
	// Position is that behind which the subscriber receives every publication, in order: first
	// those that it has missed, if Recovered is true, and then new ones.
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

// addRecovery adds the result to the answer to a client.
func addRecovery(reply *protocol.Subscribed, r topic.JoinResult) {
	reply.Position = &protocol.Position{Epoch: r.Position.Epoch, Offset: r.Position.Offset}
	reply.Recovery = &protocol.Recovery{Recovered: r.Recovered, More: r.More}
	if r.HasState {
		reply.State = &r.State
	}
	if r.Ended != nil {
		reply.Ended = &protocol.Position{Epoch: r.Ended.Epoch, Offset: r.Ended.Offset}
	}
}

// subscribeWithHistory subscribes the connection from a position on.
func (c *Conn) subscribeWithHistory(ctx context.Context, name string, opts *SubscribeOption) error {
	if err := topicname.Check(name); err != nil {
		return err
	}
	if err := c.router.mustHaveHistory(name); err != nil {
		return err
	}
	if err := c.session().admits(name, session.Grant{}); err != nil {
		return err
	}
	ctx, cancel := c.router.callContext(ctx)
	defer cancel()
	result, err := c.subscribeSince(ctx, name, topic.JoinRequest{Since: opts.since, State: opts.state})
	if err == nil {
		c.addRecoveredTopic(name, result, opts.state)
		err = c.session().admits(name, session.Grant{}) // another connection may have got it meanwhile
		if opts.recovery != nil {
			*opts.recovery = Recovery{result.Position, result.Recovered, result.Ended, result.State, result.More}
		}
	}
	c.sendHeld(name)
	return err
}

// callContext returns ctx with a deadline: its own, or after Timeouts.Call.
func (r *Router) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, r.opts.Timeouts.Call)
}

// mustHaveHistory returns an error if the topic has no History.
func (r *Router) mustHaveHistory(topic string) error {
	if r.topics.Retains(topic) {
		return nil
	}
	return errors.Errorf(errors.FailedPrecondition, "topic %q has no history; declare it with TopicOptions.History", topic)
}

// subscribeSince subscribes a client. It waits for the store. What the client has missed is held until
// sendHeld is called.
func (c *Conn) subscribeSince(ctx context.Context, name string, req topic.JoinRequest) (topic.JoinResult, error) {
	if req.Since != (broker.Position{}) {
		c.sub.ExpectPositions()
	}
	j, err := c.beginJoin(name)
	if err != nil {
		return topic.JoinResult{}, err
	}
	result, err := j.Join(ctx, req)
	if err != nil && !errors.Is(err, topic.ErrUnsubscribed) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if j.EndLocked() {
			c.unsubscribeLocked(name)
		}
	}
	return result, err
}

// beginJoin subscribes the connection unless it is subscribed already.
func (c *Conn) beginJoin(topic string) (*topic.Joining, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return nil, errClosed
	}
	return c.router.topics.BeginJoinLocked(topic, &c.sub, &c.resumableState().holding)
}

// sendHeld sends what has been held for the connection in a topic, when the answer has been queued.
func (c *Conn) sendHeld(topic string) {
	if s := c.router.topics.SendHeld(topic, &c.sub); s != nil {
		go c.sendState(s)
	}
}

// sendState sends what is left of a state, on a goroutine of its own. It ends the subscription if
// that fails.
func (c *Conn) sendState(s *topic.StateSender) {
	err := s.Run(c.ctx)
	switch {
	case err == nil:
		return
	case errors.Is(err, wsconn.ErrTimeout):
		err = errUnread
	}
	if failure := inspector.Inspect(err, "state"); c.endState(s, failure) {
		c.reportLate(c.ctx, protocol.TypeSubscribe, failure)
	}
}

// endState ends the subscription. It reports false if the client has unsubscribed or has asked again.
func (c *Conn) endState(s *topic.StateSender, failure *failure.Failure) bool {
	c.mu.Lock()
	defer c.mu.Unlock() // so that no other subscription begins meanwhile
	if !s.IsWanted() {
		return false
	}
	name := s.Topic.Name
	_ = c.send(encodeProtocol(c.codec(), protocol.Unsubscribed{Topic: name, Error: &failure.Payload})) // fails only if the connection is closed
	c.unsubscribeLocked(name)
	return true
}
