package router

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// A topicToResume is one that the client has presented, or that is in the record, or both. One
// goroutine at a time uses it.
type topicToResume struct {
	protocol.Subscribe

	pattern *topic.Pattern
	record  *session.Grant   // nil if it is not in the record
	after   *broker.Position // the client may receive only what follows; nil is everything
	missed  *sequencer.CatchupTopic
	result  protocol.ResumedTopic
	later   bool // it is subscribed, and announced when its position is known
}

// resumeTopics subscribes the connection to the topics of the client and of the record. Topics of the record that cannot
// be subscribed leave it.
func (s *connSession) resumeTopics(ctx *Context, topics []*topicToResume) {
	for _, t := range topics {
		if t.result.Error == nil {
			s.authorize(ctx, t)
		}
	}
	s.joinAll(ctx, topics)
}

// results returns the answer about each topic, and notes those that start when it has been queued.
func (s *connSession) results(topics []*topicToResume) []protocol.ResumedTopic {
	state := s.conn.resumableState()
	state.joined = nil
	results := make([]protocol.ResumedTopic, len(topics))
	for i, t := range topics {
		results[i] = t.result
		results[i].Topic = topicname.ForClient(t.Topic)
		if !t.later {
			state.joined = append(state.joined, t.Topic)
		}
	}
	return results
}

// withdraw ends subscriptions to which the user has lost access since the record was read. It subscribes again to topics
// that Authorize still permits.
func (s *connSession) withdraw(ctx *Context, topics []*topicToResume) {
	c := s.conn
	if err := s.CatchUp(ctx); err != nil {
		// The client comes back, and then the list is read first.
		c.Close(StatusTryAgainLater, transportReason(int(StatusTryAgainLater), "the session cannot be read at the moment"))
		return
	}
	granted := s.Topics()
	joining, cancel := joinContext(ctx)
	defer cancel()
	for _, t := range topics {
		if t.result.Error != nil && !t.later {
			continue
		}
		s.try(ctx, t, "Authorize", func() error {
			if _, ok := granted[t.Topic]; t.record != nil && !ok {
				return errRevoked
			}
			if s.conn.router.topicOptions[t.pattern].Authorize == nil {
				return nil
			}
			if err := ctx.authorizeTopic(t.pattern, t.Topic); err != nil || t.later || c.Subscribed(t.Topic) {
				return err
			}
			t.missed = nil // of the subscription that was revoked
			return s.join(joining, t)
		})
	}
}

// topicsToResume returns the presented topics, then the others of the record in order, and those to
// which the client has lost access.
func (s *connSession) topicsToResume(presented []protocol.Subscribe, claim *session.Claim) []*topicToResume {
	var topics []*topicToResume
	known := map[string]bool{}
	add := func(m protocol.Subscribe) {
		if known[m.Topic] {
			return
		}
		known[m.Topic] = true
		t := &topicToResume{Subscribe: m, pattern: s.conn.router.topics.PatternOf(m.Topic)}
		t.result.Topic = m.Topic
		if inRecord, ok := claim.Topics[m.Topic]; ok {
			t.record = &inRecord
			t.Positions = true // its client has asked for a session
		} else if topicname.IsUserLog(m.Topic) { // the session is older than Options.UserHistory
			t.record, t.Positions = &session.Grant{}, true
		}
		topics = append(topics, t)
	}
	for _, m := range presented {
		add(m)
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Topics)) {
		add(protocol.Subscribe{Topic: name})
	}
	for _, name := range claim.Ended {
		if !known[name] {
			payload := failure.Payload(errRevoked)
			topics = append(topics, &topicToResume{Subscribe: protocol.Subscribe{Topic: name}, result: protocol.ResumedTopic{Subscribed: protocol.Subscribed{Topic: name}, Error: &payload}})
			known[name] = true
		}
	}
	return topics
}

// authorize decides whether the client may subscribe to a topic. An error, or a panic, refuses only
// this topic, because the session has been resumed already.
func (s *connSession) authorize(ctx *Context, t *topicToResume) {
	s.try(ctx, t, "Authorize", func() error {
		if err := topicname.Check(t.Topic); err != nil && !topicname.IsUserLog(t.Topic) {
			return err
		}
		if t.record != nil && s.conn.router.topicOptions[t.pattern].Authorize == nil {
			t.limitToRecord() // a handler has decided
			return nil
		}
		return ctx.authorizeTopic(t.pattern, t.Topic)
	})
}

// limitToRecord makes the client receive no more than a handler has granted. The members of a topic
// are for clients that TopicOptions.Authorize permits to subscribe.
func (t *topicToResume) limitToRecord() {
	t.after = &broker.Position{Epoch: t.record.Epoch, Offset: t.record.Offset}
	t.Presence, t.State = false, t.State && t.record.State
	since := t.record.After(broker.Position{Epoch: t.Epoch, Offset: t.Offset})
	t.Epoch, t.Offset = since.Epoch, since.Offset
}

// try sets the error of a topic if f returns one.
func (s *connSession) try(ctx *Context, t *topicToResume, where string, f func() error) {
	executor.Do(func() {
		if refused := s.conn.router.guard(where, ctx.route, f); refused != nil {
			s.refuseTopic(ctx, t, refused)
		}
	}, func() { s.refuseTopic(ctx, t, exitedAt(where)) })
}

// refuseTopic sets the error of a topic. If the call has ended, the record keeps the topic, because the client does not learn
// that it is refused: it resumes again.
func (s *connSession) refuseTopic(ctx *Context, t *topicToResume, refused *failure.Failure) {
	t.result = protocol.ResumedTopic{Subscribed: protocol.Subscribed{Topic: t.Topic}, Error: &refused.Payload}
	switch {
	case topicname.IsUserLog(t.Topic): // which the connection has by itself
	case ctx.Err() != nil:
		s.conn.leaveTopic(t.Topic)
	default:
		s.conn.unsubscribeClient(t.Topic)
	}
	s.conn.reportLate(ctx, ctx.route.name, refused)
}

// joinAll subscribes to the topics that have no error, all at the same time, so that they are read
// together. It waits for the store.
func (s *connSession) joinAll(ctx *Context, topics []*topicToResume) {
	joining, cancel := joinContext(ctx)
	defer cancel()
	catchup := s.conn.router.topics.NewCatchup(&s.conn.sub, &s.conn.resumableState().holding)
	topics = slices.DeleteFunc(slices.Clone(topics), func(t *topicToResume) bool { return t.result.Error != nil })
	for _, t := range topics {
		if t.pattern.HasHistory() && t.Epoch != "" {
			t.missed = catchup.Topic(s.conn.router.topics.MaxMissed(t.pattern))
		}
	}
	var wg sync.WaitGroup
	for _, t := range topics {
		wg.Go(func() {
			defer t.missed.Close()
			s.try(ctx, t, "resume", func() error { return s.join(joining, t) })
		})
	}
	wg.Wait()
}

// joinContext returns a context that ends when three quarters of the time for the call are over, so
// that there is an answer even if the store does not return.
func joinContext(ctx *Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Until(deadline)*3/4, errJoinTimeout)
}

// errJoinTimeout is the error of a topic whose position could not be read in time.
var errJoinTimeout = &errors.Error{Code: errors.Unavailable, Message: "the history of the topic cannot be read at the moment"}

// join subscribes to a topic.
func (s *connSession) join(ctx context.Context, t *topicToResume) error {
	if err := s.restore(t); err != nil {
		return err
	}
	reply, err := s.conn.subscribeAuthorized(ctx, t.pattern, t.Subscribe, topic.JoinRequest{After: t.after, Missed: t.missed})
	switch {
	case err == nil:
		t.result.Subscribed = reply
		if reply.Recovery != nil && t.record != nil {
			if t.Epoch == "" {
				reply.Recovered = false // the client does not know what it has missed
			}
			s.SetPosition(t.Topic, broker.Position(*reply.Position))
		}
		return nil
	case err == errJoinTimeout && t.record != nil && s.subscribeLater(t.Topic): //nolint:errorlint // never wrapped
		t.later = true
		payload := failure.Payload(errJoinTimeout)
		t.result.Error = &payload
		return nil
	default:
		return err
	}
}

// restore subscribes to a topic of the record, whose member may have an info. On a topic with a
// History, nothing is received before the position is known.
func (s *connSession) restore(t *topicToResume) error {
	if t.record == nil {
		return nil
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	subscribed, err := c.addSubscriptionLocked(t.Topic, t.pattern.HasHistory())
	if err == nil && t.record.Joined {
		c.joinLocked(subscribed, t.record.Info)
	}
	return err
}

// subscribeLater makes a subscriber whose position could not be read in time a follower as soon as it
// can, because the client cannot ask for the subscriptions of handlers. It reports false if the
// connection has unsubscribed meanwhile.
func (s *connSession) subscribeLater(topic string) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sub.TopicLocked(topic) == nil {
		return false
	}
	s.unannounced[topic] = struct{}{}
	return true
}
