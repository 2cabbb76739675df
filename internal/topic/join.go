package topic

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// This file subscribes connections to topics with a History, from a position on.

// A JoinRequest says how a client joins a topic with a History.
type JoinRequest struct {
	Since broker.Position  // the client has received everything up to it; it begins now if it is zero
	State bool             // it receives the current state if it begins now, or cannot receive what it has missed
	Last  int              // it receives at most that many of the latest publications in this case; 0 if State is set
	After *broker.Position // it may receive only what follows; nil is everything

	// Missed reads what the client has missed, together with that of other topics; nil for this
	// topic alone.
	Missed *sequencer.CatchupTopic
}

// A JoinResult says how a subscriber continues.
type JoinResult struct {
	Position  broker.Position  // behind which the subscriber receives every publication
	Recovered bool             // first those that it has missed
	Ended     *broker.Position // where the epoch of its position has ended; nil if that has not
	State     int              // how many publications it receives first, with the current state
	More      bool             // other publications of the state follow later
	HasState  bool             // it receives the state, perhaps of no key
	Read      int              // publications that were read for it
}

// A Joining is a subscription from a position on that waits for the store.
type Joining struct {
	topics *Topics
	topic  *Topic
	f      *follower
}

// BeginJoinLocked subscribes a connection, and registers it as a follower to be. A connection that is
// not subscribed yet receives nothing before it is activated. It needs the lock of the connection.
func (ts *Topics) BeginJoinLocked(name string, c *Subscriber, h *Holding) (*Joining, error) {
	subscribed := c.TopicLocked(name) != nil
	t, err := ts.SubscribeLocked(name, c, true)
	if err != nil {
		return nil, err
	}
	return &Joining{ts, t, t.addJoining(c, h, !subscribed)}, nil
}

// Join waits for the store. What the client has missed is held until SendHeld is called. Unless the
// error is nil or ErrUnsubscribed, EndLocked must be called.
func (j *Joining) Join(ctx context.Context, req JoinRequest) (JoinResult, error) {
	ts, t := j.topics, j.topic
	if req.Missed == nil && req.Since.Epoch != "" {
		req.Missed = ts.NewCatchup(j.f.conn, j.f.holding).Topic(ts.MaxMissed(t.Pattern))
		defer req.Missed.Close()
	}
	var result JoinResult
	var err error
	active := false
	activate := func(joined sequencer.Joined) { result, active = ts.activate(t, j.f, withhold(joined, req.After)) }
	switch {
	case req.State:
		result, active, err = ts.joinState(ctx, t, j.f, req)
	case req.Last > 0:
		err = t.history.sequencer.JoinLast(ctx, req.Since, req.Missed, min(req.Last, ts.MaxMissed(t.Pattern)), activate)
	default:
		err = t.history.sequencer.Join(ctx, req.Since, req.Missed, activate)
	}
	switch {
	case err == nil && active:
		return result, nil
	case err == nil, errors.Is(err, sequencer.ErrClosed):
		return JoinResult{}, ErrUnsubscribed
	default:
		return JoinResult{}, err
	}
}

// EndLocked ends a subscription whose Join has failed. It reports whether the connection must be unsubscribed,
// because nothing else has subscribed it. It needs the lock of the connection.
func (j *Joining) EndLocked() (unsubscribe bool) {
	j.topic.mu.Lock()
	defer j.topic.mu.Unlock()
	if !j.topic.history.isJoining(j.f) {
		return false
	}
	j.topic.history.joining.remove(j.f.conn)
	return j.f.added
}

// MaxMissed returns how many publications of a topic a client may miss at most to receive them when
// it returns.
func (ts *Topics) MaxMissed(p *Pattern) int {
	return min(p.Retention.Messages, ts.config.QueueMessages/2)
}

// ErrUnsubscribed ends a subscription with positions that the connection has ended meanwhile.
var ErrUnsubscribed = &errors.Error{Code: errors.Canceled, Message: "the connection has unsubscribed meanwhile"}

// withhold removes from what a client would receive when it joins what it may not read: publications
// that are not newer than a position, unless that is nil. One of a later epoch is newer.
func withhold(j sequencer.Joined, after *broker.Position) sequencer.Joined {
	if after == nil || j.Rest != nil {
		return j
	}
	old := 0
	for _, p := range j.Publications {
		if p.Position.Offset > after.Offset || p.Position.Epoch == j.Position.Epoch && p.Position.Epoch != after.Epoch {
			break
		}
		old++
	}
	if j.Publications = j.Publications[old:]; old > 0 && j.Position.Epoch != after.Epoch {
		// Some may be of an epoch between the two, so it is unknown what the client has missed.
		j.Recovered, j.Publications = false, nil
	}
	return j
}
