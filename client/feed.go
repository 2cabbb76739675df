//go:build !js

package client

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A feed is the subscription of the client's connection to a topic, which all Subscriptions of the topic
// share. Each of them, and the functions registered with On, has a position of its own: the feed is
// requested from the earliest one, and each skips what it has received. The client's lock guards
// everything below.
type feed struct {
	client *Client
	topic  string

	all       *Subscription   // what the functions registered with On have received
	subs      []*Subscription // of the application; none if only the server has made the subscription
	presented Position        // of the last request
	hidden    bool            // likewise
	asking    *call           // the request without an answer; publications are ignored meanwhile
	joined    bool            // the server has confirmed it before
	live      bool            // publications are received
	stateLeft int             // publications of the state that follow; math.MaxInt until $ws:state
	stateAt   uint64          // their highest offset
	again     bool            // another request is necessary when the state is complete
	retry     *time.Timer
	removed   bool
}

// userTopic is the topic of the messages to the user of the client. The server subscribes the client
// to it, and no other one can.
const userTopic = ""

// feedOfLocked returns the feed of a topic, which may be new.
func (c *Client) feedOfLocked(topic string) *feed {
	f := c.topics[topic]
	if f == nil {
		f = &feed{client: c, topic: topic}
		f.all = &Subscription{feed: f, ready: make(chan struct{})}
		c.topics[topic] = f
	}
	return f
}

// addLocked adds a subscription of the application, and requests what it needs.
func (f *feed) addLocked(opts *SubscribeOptions) *Subscription {
	s := &Subscription{
		feed: f, opts: *opts, received: opts.Since, handled: opts.Since, ready: make(chan struct{}),
		needsLast: opts.Last > 0 && opts.Since.Epoch == "", needsState: opts.State && opts.Since.Epoch == "", asked: f.topic == userTopic,
	}
	s.opts.Handlers = slices.Clone(opts.Handlers)
	if f.all.received == (Position{}) {
		f.all.received = opts.Since
	}
	f.subs = append(slices.Clone(f.subs), s)
	asksNothing := len(f.subs) > 1 && f.wantsHiddenLocked() == f.hidden && opts.Since.Epoch == "" && opts.Last == 0 && !opts.State && opts.OnPresence == nil
	if f.live && (asksNothing || f.topic == userTopic) {
		s.asked, s.received, s.handled = true, f.all.received, f.all.received
		s.readyOnce.Do(func() { close(s.ready) })
		return s
	}
	f.askLocked()
	return s
}

// readersLocked returns what receives publications.
func (f *feed) readersLocked() []*Subscription { return append([]*Subscription{f.all}, f.subs...) }

// wantsHiddenLocked reports whether there are subscriptions, and none makes the client present.
func (f *feed) wantsHiddenLocked() bool {
	return len(f.subs) > 0 && !slices.ContainsFunc(f.subs, func(s *Subscription) bool { return !s.opts.Hidden })
}

func (f *feed) requestLocked() protocol.Subscribe {
	f.hidden = f.wantsHiddenLocked()
	r := protocol.Subscribe{Topic: f.topic, Positions: true, Hidden: f.hidden}
	first := false // with a position, the server would send what follows it instead
	for _, s := range f.subs {
		r.Presence = r.Presence || s.opts.OnPresence != nil
		r.State = r.State || s.opts.State
		r.Last = max(r.Last, int64(s.opts.Last))
		first = first || s.needsState || s.needsLast
		s.asked = true
	}
	f.presented = Position{}
	for _, s := range f.readersLocked() {
		if p := s.received; !first && p.Epoch != "" && (r.Epoch == "" || p.Epoch == r.Epoch && p.Offset < r.Offset) {
			r.Epoch, r.Offset, f.presented = p.Epoch, p.Offset, p
		}
	}
	return r
}

// pauseLocked ends the delivery until the subscription is confirmed again. A state that has arrived in part
// is of no use.
func (f *feed) pauseLocked() {
	for _, s := range f.readersLocked() {
		if f.stateLeft > 0 && s.takesState {
			s.received, s.needsState = Position{}, s.opts.State
		}
		s.takesState = false
	}
	f.live, f.stateLeft = false, 0
}

func (f *feed) askLocked() {
	c := f.client
	if !c.subscribing || f.asking != nil || f.topic == userTopic {
		return // it is requested when the connection is open, or when the answer has arrived
	}
	cl := newCall(protocol.TypeSubscribe, protocol.TypeSubscribed)
	isSubscribed := f.live
	cl.onAnswer = func(a answer) { c.subscribedBy(cl, f, a, isSubscribed) }
	f.asking = cl
	f.pauseLocked()
	c.topicConn.startLocked(cl, encodeProtocol(f.requestLocked()))
}

// subscribedBy handles the answer to a request for a subscription, which the connection perhaps had before.
func (c *Client) subscribedBy(cl *call, f *feed, a answer, isSubscribed bool) {
	var m protocol.Subscribed
	if a.err == nil {
		a.err = a.decode(&m)
	}
	c.mu.Lock()
	if f.asking != cl {
		c.mu.Unlock()
		return // it has ended, or the connection has
	}
	f.asking = nil
	c.mu.Unlock()
	if a.err != nil {
		c.subscriptionFailed(f, a.err, isSubscribed)
		return
	}
	c.join(f, &m)
}

// subscriptionFailed ends a subscription, or tries again later. If a further Subscription was the reason
// for the request, only that ends. isSubscribed is set if the server still has the subscription.
func (c *Client) subscriptionFailed(f *feed, err error, isSubscribed bool) {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok || !e.Retryable() {
		if f.endNew(err) {
			return
		}
		f.end(err)
		c.mu.Lock()
		defer c.mu.Unlock()
		if isSubscribed {
			c.leaveLocked(f.topic)
		}
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
	f.retry = time.AfterFunc(delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !f.removed && !f.live {
			f.askLocked()
		}
	})
}

// endNew ends the subscriptions that the server has not confirmed yet, if there are others, and requests those
// again. It reports false if all are of one kind.
func (f *feed) endNew(cause error) bool {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	kept := slices.DeleteFunc(slices.Clone(f.subs), func(s *Subscription) bool { return !isClosed(s.ready) })
	if len(kept) == 0 || len(kept) == len(f.subs) {
		return false
	}
	for _, s := range f.subs {
		if !isClosed(s.ready) {
			s.endLocked(cause)
		}
	}
	f.subs = kept
	f.askLocked()
	return true
}

// end ends the subscription with an error of the server or of the client.
func (f *feed) end(cause error) {
	c := f.client
	c.mu.Lock()
	f.removeLocked()
	subs := f.subs
	for _, s := range subs {
		s.endLocked(cause)
	}
	c.mu.Unlock()
	for _, s := range subs {
		if s.opts.OnEnd != nil {
			c.events.Add(func() { s.call("OnEnd", func() { s.opts.OnEnd(cause) }) })
		}
	}
}

func (f *feed) removeLocked() {
	if f.client.topics[f.topic] == f {
		delete(f.client.topics, f.topic)
	}
	f.removed, f.live, f.asking = true, false, nil
	if f.retry != nil {
		f.retry.Stop()
	}
}
