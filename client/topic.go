//go:build !js

package client

import (
	"context"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A Position is a place in the publications of a topic with a history: right after the one with this
// offset. A Position without an Epoch is none.
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

	// Last asks for that many of the latest publications of a topic with a history, if there is no Since, and after OnLoss:
	// fewer if it has no more, or more if others ask for more or begin earlier. Without a loss, nothing is received twice. If
	// the topic has no history, Options.OnError learns that.
	Last int

	// State asks for the current state of topics whose publications have keys: one message per key, with
	// Received.State set. A large state follows in part between publications, which are newer: a message of the
	// state never replaces one. Position is the zero Position until the handlers have the whole state.
	// When publications were missed, OnLoss is called, and the whole state follows: what is not part of it does
	// not exist any more.
	State bool

	// Handlers receive the publications of the topic on this subscription. The functions that are registered with
	// [On] receive them, too.
	Handlers []Handler

	// OnLoss is called, in order with the handlers, when publications were missed that the server
	// can no longer send: the application should load its state again.
	OnLoss func(Loss)

	// OnPresence is called, in order with the handlers, with the members of the topic: first with all of them and reset true,
	// also after every interruption and when another subscription asks for them, and then with changes. First the members in
	// left go, then those in joined come. If nil, the client does not ask for them. If the topic has no presence, it is not
	// called, and Options.OnError learns that.
	OnPresence func(joined, left []Member, reset bool)

	// Hidden subscribes without being present, which the server must permit (TopicOptions.AuthorizeHidden). The client
	// is present nevertheless while another Subscription of the topic is not Hidden.
	Hidden bool

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
	// higher offsets, if there were any, are lost, even if the handlers have received them.
	Ended *Position

	Position Position // at which the subscription continues
}

// A Subscription receives the publications of a topic, until Unsubscribe is called.
type Subscription struct {
	feed *feed
	opts SubscribeOptions

	// The client's lock guards the following.
	received   Position      // of the last publication that was received, or the one to begin after
	handled    Position      // of the last publication whose handlers have returned
	needsLast  bool          // it has not received the latest publications that it asks for
	needsState bool          // it has no state to which publications could be applied
	takesState bool          // it receives the state that follows
	asked      bool          // it is part of the last request, or needs none
	hasMembers bool          // OnPresence was called with all members
	ready      chan struct{} // closed when it was confirmed, or has ended
	readyOnce  sync.Once
	ended      bool
	err        error // why it has ended
	left       bool  // Unsubscribe was called: no function of the application is called any more
}

// Subscribe subscribes to a topic, and waits until the server has confirmed it. The publications are
// passed to the Handlers of opts, and to the functions registered with [On]. The client subscribes again
// after every interruption, and recovers what it has missed if the topic has a history. Every call returns a
// Subscription of its own, with its own options; the client has one subscription on the server for all
// of a topic. If opts is nil, the zero SubscribeOptions apply.
//
// The topic "" stands for the messages to the user of the client, if the server stores them
// (router.Options.UserHistory) and the client has a session (Options.Resume). The server subscribes
// the client to it by itself, so functions registered with [On] receive these messages anyway:
// Subscribe waits for that, and OnLoss then says what was missed.
//
// It returns the error with which the server has rejected the subscription, if trying again does
// not help. If ctx is done first, the subscription is ended and the context's cause returned.
func (c *Client) Subscribe(ctx context.Context, topic string, opts *SubscribeOptions) (*Subscription, error) {
	c.begin()
	if opts == nil {
		opts = &SubscribeOptions{}
	}
	c.mu.Lock()
	if err := c.closedErrorLocked(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	s := c.feedOfLocked(topic).addLocked(opts)
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
func (s *Subscription) Topic() string { return s.feed.topic }

// Position returns the position of the last publication whose handlers have returned. An application
// that stores it can continue there with SubscribeOptions.Since. It is the zero Position if the topic
// has no history.
func (s *Subscription) Position() Position {
	s.feed.client.mu.Lock()
	defer s.feed.client.mu.Unlock()
	return s.handled
}

// Unsubscribe ends the subscription. No function of its options is called after Unsubscribe has returned, except for one
// that runs already; what they have not received is not counted by Position. Calling it again has no effect.
func (s *Subscription) Unsubscribe() {
	f, c := s.feed, s.feed.client
	c.mu.Lock()
	defer c.mu.Unlock()
	s.left = true
	if s.ended {
		return
	}
	s.endLocked(ErrUnsubscribed)
	f.subs = slices.DeleteFunc(slices.Clone(f.subs), func(other *Subscription) bool { return other == s })
	if len(f.subs) > 0 || f.topic == userTopic {
		f.again = f.live && (f.again || f.wantsHiddenLocked() != f.hidden)
		f.askAgainLocked()
		return
	}
	f.removeLocked()
	if c.subscribing {
		c.leaveLocked(f.topic)
	}
}

// leaveLocked ends the subscription of the connection to a topic.
func (c *Client) leaveLocked(topic string) {
	cl := newCall(protocol.TypeUnsubscribe, protocol.TypeUnsubscribed)
	cl.onAnswer = func(answer) {}
	c.topicConn.startLocked(cl, encodeProtocol(protocol.Unsubscribe{Topic: topic}))
}

// ErrUnsubscribed is the error of a subscription that Unsubscribe has ended.
var ErrUnsubscribed = &errors.Error{Code: errors.Canceled, Message: "the subscription has ended"}

// endLocked ends the subscription.
func (s *Subscription) endLocked(cause error) {
	s.ended, s.err = true, cause
	s.readyOnce.Do(func() { close(s.ready) })
}

// handle calls the handlers of a publication.
func (s *Subscription) handle(r *Received) {
	for i := range s.opts.Handlers {
		if h := &s.opts.Handlers[i]; h.typ == r.Type && !s.hasLeft() {
			s.feed.client.callHandler(h, r)
		}
	}
}

// call calls another function of the options.
func (s *Subscription) call(name string, f func()) {
	if !s.hasLeft() {
		s.feed.client.guard(name, f)
	}
}

func (s *Subscription) hasLeft() bool {
	s.feed.client.mu.Lock()
	defer s.feed.client.mu.Unlock()
	return s.left
}

// advance moves the position of what was handled.
func (s *Subscription) advance(p Position) {
	s.feed.client.mu.Lock()
	defer s.feed.client.mu.Unlock()
	if !s.left {
		s.handled = p
	}
}
