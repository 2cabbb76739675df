//go:build !js

package client

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Position is a place in the publications of a topic with a history: right after the one with this
// offset. The zero Position is none.
type Position struct {
	Epoch  string `json:"epoch"`
	Offset uint64 `json:"offset"`
}

// A Member is a connection that is present in a topic.
type Member struct {
	ConnID   string `json:"connId"`
	TenantID string `json:"tenantId"`
	UserID   string `json:"userId"`
	Info     string `json:"info"`
}

// SubscribeOptions configure a subscription. The zero value begins with the next publication.
type SubscribeOptions struct {
	// Since is the position up to which the application has handled everything, for example from an
	// earlier run. The subscription then begins with what follows.
	Since Position

	// State asks for the current state of topics whose publications have keys: one message per key, with
	// Received.State set, before the first publication. When publications were missed, OnLoss is
	// called, and the whole state follows: what is not part of it does not exist any more.
	State bool

	// OnLoss is called, in order with the handlers, when publications were missed that the server
	// can no longer send: the application should load its state again.
	OnLoss func(Loss)

	// OnPresence is called, in order with the handlers, with the members of the topic: first with all
	// of them and reset true, also after every interruption, and then with changes. First the
	// members in left go, then those in joined come. If nil, the client does not ask for them.
	OnPresence func(joined, left []Member, reset bool)

	// OnEnd is called when the server has ended the subscription, or has rejected it after an
	// interruption.
	OnEnd func(error)
}

// A Loss says what a subscription has missed.
type Loss struct {
	// From and To are the first and the last offset that are lost. They are 0 if it is unknown what
	// was missed.
	From, To uint64

	// Ended is set if the store of the server has failed over: publications of that epoch with
	// higher offsets, if there were any, are lost, also if the handlers have received them.
	Ended *Position

	Position Position // at which the subscription continues
}

// A Subscription receives the publications of a topic, until Unsubscribe is called.
type Subscription struct {
	client *Client
	topic  string
	opts   SubscribeOptions

	// The client's lock guards the following.
	users     int           // of Subscribe; 0 if only the server has made the subscription
	received  Position      // of the last publication that was received, or the one to begin after
	handled   Position      // of the last publication whose handlers have returned
	asking    *call         // the request without an answer; publications are ignored meanwhile
	live      bool          // publications are received
	stateLeft int           // publications that are state
	ready     chan struct{} // closed when the first request was answered, or the subscription has ended
	readyOnce sync.Once
	err       error // why it has ended
	retry     *time.Timer
}

// Subscribe subscribes to a topic, and waits until the server has confirmed it. The publications are
// passed to the functions registered with [On]. The client subscribes again after every
// interruption, and recovers what it has missed if the topic has a history. Subscribing again returns
// the same Subscription, with the options of the first call; every one must be ended. If opts
// is nil, the zero SubscribeOptions apply.
//
// It returns the error with which the server has rejected the subscription, if trying again does
// not help. If ctx is done first, the subscription is ended and the context's cause returned.
func (c *Client) Subscribe(ctx context.Context, topic string, opts *SubscribeOptions) (*Subscription, error) {
	c.begin()
	c.mu.Lock()
	if err := c.closedError(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	s := c.topics[topic]
	if s == nil {
		s = &Subscription{client: c, topic: topic, ready: make(chan struct{})}
		c.topics[topic] = s
	}
	if s.users++; s.users == 1 {
		if opts != nil {
			s.opts = *opts
			if s.received == (Position{}) {
				s.received, s.handled = opts.Since, opts.Since
			}
		}
		s.live = false
		s.ask()
	}
	c.mu.Unlock()
	select {
	case <-s.ready:
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.err != nil {
			return nil, s.err
		}
		return s, nil
	case <-ctx.Done():
		s.Unsubscribe()
		return nil, context.Cause(ctx)
	}
}

// Topic returns the name of the topic.
func (s *Subscription) Topic() string { return s.topic }

// Position returns the position of the last publication whose handlers have returned. An application
// that stores it can continue there with SubscribeOptions.Since. It is the zero Position if the topic
// has no history.
func (s *Subscription) Position() Position {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return s.handled
}

// Unsubscribe ends the subscription when it was called as often as Subscribe.
func (s *Subscription) Unsubscribe() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users == 0 {
		return
	}
	if s.users--; s.users > 0 || c.topics[s.topic] != s {
		return // the server has ended it; another Subscription may have replaced it
	}
	s.remove(ErrUnsubscribed)
	if cn := c.topicConn; c.subscribing {
		cl := newCall("$ws:unsubscribe", typeUnsubscribed)
		cl.onAnswer = func(answer) {}
		cn.startLocked(cl, encodeProtocol(unsubscribe{s.topic}))
	}
}

// ErrUnsubscribed is the error of a subscription that Unsubscribe has ended.
var ErrUnsubscribed = &errors.Error{Code: errors.Canceled, Message: "the subscription has ended"}

// remove ends the subscription. The client's lock must be held.
func (s *Subscription) remove(cause error) {
	if s.client.topics[s.topic] == s {
		delete(s.client.topics, s.topic)
	}
	s.err, s.live, s.asking = cause, false, nil
	if s.retry != nil {
		s.retry.Stop()
	}
	s.readyOnce.Do(func() { close(s.ready) })
}

// end ends the subscription with an error of the server or of the client.
func (s *Subscription) end(cause error) {
	c := s.client
	c.mu.Lock()
	s.remove(cause)
	c.mu.Unlock()
	if s.opts.OnEnd != nil {
		c.events.Add(func() { c.guard("OnEnd", func() { s.opts.OnEnd(cause) }) })
	}
}

// request returns the request for the subscription. The client's lock must be held.
func (s *Subscription) request() subscribe {
	return subscribe{
		Topic: s.topic, Presence: s.opts.OnPresence != nil, State: s.opts.State, Positions: true,
		Epoch: s.received.Epoch, Offset: s.received.Offset,
	}
}

// pause ends the delivery until the subscription is confirmed again. A state that has arrived in part
// is of no use. The client's lock must be held.
func (s *Subscription) pause() {
	if s.stateLeft > 0 {
		s.received = Position{}
	}
	s.live, s.stateLeft = false, 0
}

// ask requests the subscription on the current connection. The client's lock must be held.
func (s *Subscription) ask() {
	cn := s.client.topicConn
	if !s.client.subscribing || s.asking != nil {
		return // it is requested when the connection is open
	}
	cl := newCall("$ws:subscribe", typeSubscribed)
	cl.onAnswer = func(a answer) { s.client.subscribedBy(cl, s, cn, a) }
	s.asking = cl
	s.pause()
	cn.startLocked(cl, encodeProtocol(s.request()))
}

// subscribedBy handles the answer to a request for a subscription.
func (c *Client) subscribedBy(cl *call, s *Subscription, cn *conn, a answer) {
	var m subscribed
	if a.err == nil {
		a.err = a.decode(&m)
	}
	c.mu.Lock()
	if s.asking != cl {
		c.mu.Unlock()
		return // it has ended, or the connection has
	}
	s.asking = nil
	c.mu.Unlock()
	if a.err != nil {
		c.subscriptionFailed(s, a.err)
		return
	}
	c.join(s, cn, &m)
}

// subscriptionFailed ends a subscription, or tries again later.
func (c *Client) subscriptionFailed(s *Subscription, err error) {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok || !e.Retryable() {
		s.end(err)
		return
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		return // it is requested on the next connection
	}
	delay := e.RetryAfter
	if delay == 0 {
		delay = time.Second
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.retry = time.AfterFunc(delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.err == nil && !s.live {
			s.ask()
		}
	})
}

// join begins to receive publications after the position that the server has returned.
func (c *Client) join(s *Subscription, cn *conn, m *subscribed) {
	c.mu.Lock()
	before := s.received
	s.live, s.stateLeft = true, 0
	s.received = Position{m.Epoch, m.Offset}
	if m.State != nil {
		s.stateLeft = *m.State
	}
	position, withState := s.received, s.stateLeft > 0
	missed := before.Epoch != "" && m.Epoch != "" && !m.Recovered
	if missed && s.opts.State && m.State == nil {
		s.received = Position{} // so that the next answer has the state
		s.ask()
	}
	s.readyOnce.Do(func() { close(s.ready) })
	onLoss, onPresence := s.opts.OnLoss, s.opts.OnPresence
	c.mu.Unlock()
	if onPresence != nil {
		c.dispatch(cn, 0, func() { c.guard("OnPresence", func() { onPresence(m.Members, nil, true) }) })
	}
	if missed || m.Ended != nil {
		c.lose(cn, s, onLoss, Loss{Ended: m.Ended, Position: position})
	} else if !withState {
		c.dispatch(cn, 0, func() { s.advance(position) })
	}
}

// lose reports a loss, in order with the publications.
func (c *Client) lose(cn *conn, s *Subscription, onLoss func(Loss), l Loss) {
	c.dispatch(cn, 0, func() {
		if onLoss != nil {
			c.guard("OnLoss", func() { onLoss(l) })
		}
		if !s.opts.State {
			s.advance(l.Position)
		}
	})
}

// advance moves the position of what was handled.
func (s *Subscription) advance(p Position) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	s.handled = p
}
