package member

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
	"github.com/penstock-go/penstock/internal/wire"
)

// This file subscribes a connection to the topics of the session that it resumes.

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

// A resumption is a call of a client that resumes a session, which is that of its connection already.
type resumption struct {
	*Resume

	ctx     context.Context //nolint:containedctx // of one call
	node    *Node
	conn    Conn
	member  *Member
	session *Session
}

// resumeTopics subscribes the connection to the topics of the client and of the record. Topics of the record that cannot
// be subscribed leave it.
func (r *resumption) resumeTopics(topics []*topicToResume) {
	for _, t := range topics {
		if t.result.Error == nil {
			r.authorize(t)
		}
	}
	r.joinAll(topics)
}

// results returns the answer about each topic, and notes those that start when it has been queued.
func (r *resumption) results(topics []*topicToResume) []protocol.ResumedTopic {
	var resumed []string
	results := make([]protocol.ResumedTopic, len(topics))
	for i, t := range topics {
		results[i] = t.result
		results[i].Topic = topicname.ForClient(t.Topic)
		if !t.later {
			resumed = append(resumed, t.Topic)
		}
	}
	r.member.needRecovery().resumed = resumed
	return results
}

// withdraw ends subscriptions to which the user has lost access since the record was read. It subscribes again to topics
// that Authorize still permits.
func (r *resumption) withdraw(topics []*topicToResume) {
	if err := r.session.CatchUp(r.ctx); err != nil {
		// The client comes back, and then the list is read first.
		payload := failure.Payload(errUnreadable)
		r.member.WS.Close(codeTryAgainLater, wire.CloseReason(&payload))
		return
	}
	granted := r.session.Topics()
	joining, cancel := joinContext(r.ctx)
	defer cancel()
	for _, t := range topics {
		if t.result.Error != nil && !t.later {
			continue
		}
		r.try(t, "Authorize", func() error {
			if _, ok := granted[t.Topic]; t.record != nil && !ok {
				return errRevoked
			}
			if !r.node.Authorizes(t.pattern) {
				return nil
			}
			if err := r.Authorize(t.pattern, &t.Subscribe); err != nil || t.later || r.member.Subscribed(t.Topic) {
				return err
			}
			t.missed = nil // of the subscription that was revoked
			return r.join(joining, t)
		})
	}
}

// topicsToResume returns the presented topics, then the others of the record in order, and those to
// which the client has lost access.
func (r *resumption) topicsToResume(claim *session.Claim) []*topicToResume {
	var topics []*topicToResume
	known := map[string]bool{}
	add := func(m protocol.Subscribe) {
		if known[m.Topic] {
			return
		}
		known[m.Topic] = true
		t := &topicToResume{Subscribe: m, pattern: r.node.Topics.PatternOf(m.Topic)}
		t.result.Topic = m.Topic
		if inRecord, ok := claim.Topics[m.Topic]; ok {
			t.record = &inRecord
			t.Positions = true // its client has asked for a session
		} else if topicname.IsUserLog(m.Topic) { // the session is older than Options.UserHistory
			t.record, t.Positions = &session.Grant{}, true
		}
		topics = append(topics, t)
	}
	for _, m := range r.Topics {
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
func (r *resumption) authorize(t *topicToResume) {
	r.try(t, "Authorize", func() error {
		isLog := topicname.IsUserLog(t.Topic) && r.node.UserLogs
		if err := topicname.Check(topicname.ForClient(t.Topic)); err != nil && !isLog {
			return err
		}
		if t.record != nil && !r.node.Authorizes(t.pattern) {
			t.limitToRecord() // a handler has decided
			return nil
		}
		return r.Authorize(t.pattern, &t.Subscribe)
	})
}

// limitToRecord makes the client receive no more than a handler has granted. The members of a topic
// are for clients that TopicOptions.Authorize permits to subscribe.
func (t *topicToResume) limitToRecord() {
	t.after = &broker.Position{Epoch: t.record.Epoch, Offset: t.record.Offset}
	t.Presence, t.Hidden, t.State = false, false, t.State && t.record.State
	since := t.record.After(broker.Position{Epoch: t.Epoch, Offset: t.Offset})
	t.Epoch, t.Offset = since.Epoch, since.Offset
}

// try sets the error of a topic if f returns one.
func (r *resumption) try(t *topicToResume, where string, f func() error) {
	executor.Do(func() {
		if refused := r.Protect(where, f); refused != nil {
			r.refuseTopic(t, refused)
		}
	}, func() { r.refuseTopic(t, failure.Exited(where)) })
}

// refuseTopic sets the error of a topic. If the call has ended, the record keeps the topic, because the client does not learn
// that it is refused: it resumes again.
func (r *resumption) refuseTopic(t *topicToResume, refused *failure.Failure) {
	t.result = protocol.ResumedTopic{Subscribed: protocol.Subscribed{Topic: t.Topic}, Error: &refused.Payload}
	if !topicname.IsUserLog(t.Topic) { // which the connection has by itself
		r.node.Leave(r.member, t.Topic, r.ctx.Err() != nil)
	}
	r.Report(refused)
}

// joinAll subscribes to the topics that have no error, all at the same time, so that they are read
// together. It waits for the store.
func (r *resumption) joinAll(topics []*topicToResume) {
	joining, cancel := joinContext(r.ctx)
	defer cancel()
	catchup := r.node.Topics.NewCatchup(&r.member.Subscriber, &r.member.needRecovery().holding)
	topics = slices.DeleteFunc(slices.Clone(topics), func(t *topicToResume) bool { return t.result.Error != nil })
	for _, t := range topics {
		if t.pattern.HasHistory() && t.Epoch != "" {
			t.missed = catchup.Topic(r.node.Topics.MaxMissed(t.pattern))
		}
	}
	join := func(t *topicToResume) {
		defer t.missed.Close()
		r.try(t, "resume", func() error { return r.join(joining, t) })
	}
	if len(topics) == 1 { // the stack of another goroutine would have to grow
		join(topics[0])
		return
	}
	var wg sync.WaitGroup
	for _, t := range topics {
		wg.Go(func() { join(t) })
	}
	wg.Wait()
}

// joinContext returns a context that ends when three quarters of the time for the call are over, so
// that there is an answer even if the store does not return.
func joinContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Until(deadline)*3/4, errJoinTimeout)
}

// errUnreadable closes a connection for whose session the revocations cannot be read.
var errUnreadable = &errors.Error{Code: errors.ResourceExhausted, Message: "the session cannot be read at the moment"}

// errRevoked is the result of a topic to which the client has lost access.
var errRevoked = &errors.Error{Code: errors.PermissionDenied, Message: "the access to this topic has ended"}

// errJoinTimeout is the error of a topic whose position could not be read in time.
var errJoinTimeout = &errors.Error{Code: errors.Unavailable, Message: "the history of the topic cannot be read at the moment"}

// join subscribes to a topic.
func (r *resumption) join(ctx context.Context, t *topicToResume) error {
	request := t.Subscribe
	if t.record != nil { // its member may have an info; nothing is received before the position is known
		granted := *t.record
		granted.Hidden = granted.Hidden || request.Hidden
		request.Hidden = granted.Hidden
		if err := r.node.restore(r.conn, r.member, t.Topic, granted, t.pattern.HasHistory()); err != nil {
			return err
		}
	}
	reply, err := r.node.SubscribeClient(ctx, r.conn, t.pattern, request, topic.JoinRequest{After: t.after, Missed: t.missed})
	switch {
	case err == nil:
		t.result.Subscribed = reply
		if reply.Recovery != nil && t.record != nil {
			if t.Epoch == "" {
				reply.Recovered = false // the client does not know what it has missed
			}
			r.session.SetPosition(t.Topic, broker.Position(*reply.Position))
		}
		return nil
	case err == errJoinTimeout && t.record != nil && r.member.announceLater(r.session, t.Topic): //nolint:errorlint // never wrapped
		t.later = true
		payload := failure.Payload(errJoinTimeout)
		t.result.Error = &payload
		return nil
	default:
		return err
	}
}
