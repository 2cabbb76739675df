package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file delivers publications with their positions to the clients that have asked for them, and
// what such a client has missed when it returns.

// A follower is a subscriber that receives positions. The topic's lock guards it.
type follower struct {
	conn *Conn
	held *heldFrames // nil once the answer to its request is queued

	// rest is what is still to be sent of the state, nil if there is nothing. When held is sent, a
	// goroutine of its own begins to send it (sendState).
	rest *sequencer.StateRest
}

// connNumber returns the number by which a connList sorts.
func (f *follower) connNumber() uint64 { return f.conn.number }

// heldFrames are sent after the answer to a follower's request.
type heldFrames struct {
	frames []*wsconn.Frame
	bytes  int // of frames
}

// A topicHistory is what a topic with a History needs in addition.
type topicHistory struct {
	sequencer *sequencer.Sequencer // its lock is acquired before the topic's, which guards the rest
	followers connList[*follower]
	joining   connList[*follower] // subscriptions with positions that wait for the store
}

// isJoining reports whether the subscriber has not unsubscribed or asked again since it began to wait.
func (h *topicHistory) isJoining(f *follower) bool { return h.joining.find(f.conn) == f }

// remove removes what is kept for a connection.
func (h *topicHistory) remove(c *Conn) {
	h.joining.remove(c)
	if f := h.followers.find(c); f != nil {
		f.dropHeld()
		h.followers.remove(c)
	}
}

// A Recovery says how a subscriber of a topic with a History continues; see
// [Context.SubscribeSince].
type Recovery struct {
	// Position is that behind which the subscriber receives every publication, in order: first
	// those that it has missed, if Recovered is true, and then new ones.
	Position broker.Position

	// Recovered is false if the history does not reach back to the subscriber's position, or too
	// much was missed. The client must then load its state.
	Recovered bool

	// Ended is set if the epoch of the subscriber's position has ended: publications of that epoch
	// with higher offsets than Ended.Offset, if there were any, are lost, also if the subscriber has
	// received them.
	Ended *broker.Position

	// State is how many publications the client receives first, with the current state; see
	// [Context.SubscribeState].
	State int

	// More is true if other publications of the state follow later, between new ones.
	More bool

	hasState bool // the client receives the state, perhaps of no key
	read     int  // publications that were read for it
}

// addRecovery adds a Recovery to the answer to a client.
func addRecovery(reply *protocol.Subscribed, r Recovery) {
	reply.Position = &protocol.Position{Epoch: r.Position.Epoch, Offset: r.Position.Offset}
	reply.Recovery = &protocol.Recovery{Recovered: r.Recovered, More: r.More}
	if r.hasState {
		reply.State = &r.State
	}
	if r.Ended != nil {
		reply.Ended = &protocol.Position{Epoch: r.Ended.Epoch, Offset: r.Ended.Offset}
	}
}

// SubscribeSince subscribes the connection to a topic with a History, from a position on that the
// client has presented: the zero Position begins now. The client receives what it has missed, and
// then every publication, with the topic and the offset in meta if it has greeted, has asked for
// positions, or has presented one; see the protocol, section 10. It receives nothing before SubscribeSince has checked the position. While the store cannot be read,
// SubscribeSince waits until the context is done, so it should be called by calls, which have a
// deadline.
//
// SubscribeSince does not call TopicOptions.Authorize. It returns the errors of [Conn.Subscribe],
// FAILED_PRECONDITION if the topic has no History, the context's cause, and CANCELLED if the connection
// unsubscribes meanwhile.
func (c *Context) SubscribeSince(topic string, since broker.Position) (Recovery, error) {
	return c.subscribeWithHistory(topic, joinRequest{since: since})
}

// subscribeWithHistory is SubscribeSince, or SubscribeState.
func (c *Context) subscribeWithHistory(topic string, req joinRequest) (Recovery, error) {
	if err := checkTopic(topic); err != nil {
		return Recovery{}, err
	}
	if err := c.conn.router.topics.mustHaveHistory(topic); err != nil {
		return Recovery{}, err
	}
	if err := c.conn.sessionAdmits(topic); err != nil {
		return Recovery{}, err
	}
	recovery, err := c.conn.subscribeSince(c, topic, req)
	if err == nil {
		c.conn.addRecoveredTopic(topic, recovery, req.state)
	}
	c.conn.router.topics.sendHeld(topic, c.conn)
	return recovery, err
}

// mustHaveHistory returns an error if the topic has no History.
func (ts *topics) mustHaveHistory(topic string) error {
	if ts.retains(topic) {
		return nil
	}
	return errors.Errorf(errors.FailedPrecondition, "topic %q has no history; declare it with TopicOptions.History", topic)
}

// A joinRequest says how a client joins a topic with a History.
type joinRequest struct {
	since broker.Position // the client has received everything up to it; it begins now if it is zero
	state bool            // it receives the current state if it begins now, or cannot receive what it has missed
	grant *topicGrant     // what it may receive; nil is everything

	// missed reads what the client has missed, together with that of other topics; nil for this topic alone.
	missed *sequencer.CatchupTopic
}

// subscribeSince subscribes a client. It waits for the store. What the client has missed is held until
// topics.sendHeld is called.
func (c *Conn) subscribeSince(ctx context.Context, topic string, req joinRequest) (Recovery, error) {
	if req.since != (broker.Position{}) {
		c.expectPositions()
	}
	t, f, added, err := c.addFollower(topic)
	if err != nil {
		return Recovery{}, err
	}
	if req.missed == nil && req.since.Epoch != "" {
		req.missed = c.newCatchup().Topic(t.pattern.maxMissed(c))
		defer req.missed.Close()
	}
	var result Recovery
	active := false
	if req.state {
		result, active, err = t.joinState(ctx, f, req)
	} else {
		err = t.history.sequencer.Join(ctx, req.since, req.missed, func(j sequencer.Joined) { result, active = t.activate(f, req.grant.withhold(j)) })
	}
	switch {
	case err == nil && active:
		return result, nil
	case err == nil:
		return Recovery{}, errUnsubscribed
	case added:
		c.unsubscribeClient(topic)
	default:
		t.removeJoining(f)
	}
	if errors.Is(err, sequencer.ErrClosed) {
		return Recovery{}, errUnsubscribed
	}
	return Recovery{}, err
}

// unrecoveredWork is how many publications a client is charged for that cannot receive what it has missed.
const unrecoveredWork = 256

// maxMissed returns how many publications of a topic c may miss at most to receive them when it returns.
func (p *topicPattern) maxMissed(c *Conn) int {
	return min(p.opts.History.Messages, c.router.opts.Limits.QueueMessages/2)
}

// errUnsubscribed ends a subscription with positions that the connection has ended meanwhile.
var errUnsubscribed = &errors.Error{Code: errors.Canceled, Message: "the connection has unsubscribed meanwhile"}

// addFollower subscribes the connection, and registers it as a follower to be. A connection that is
// not subscribed yet receives nothing before it is activated.
func (c *Conn) addFollower(topic string) (t *topic, f *follower, added bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	subscribed := c.topics.find(topic) != nil
	if t, err = c.addSubscriptionLocked(topic, true); err != nil {
		return nil, nil, false, err
	}
	return t, t.addJoining(c), !subscribed, nil
}

// addJoining registers a subscriber as a follower to be, and returns the follower.
func (t *topic) addJoining(c *Conn) *follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{conn: c, held: new(heldFrames)}
	t.history.joining.put(f)
	return f
}

func (t *topic) removeJoining(f *follower) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.history.isJoining(f) {
		t.history.joining.remove(f.conn)
	}
}

// activate makes a subscriber a follower, and holds what it has missed. The sequencer calls it under
// its lock. It reports false if the subscriber has unsubscribed or has asked again meanwhile.
func (t *topic) activate(f *follower, j sequencer.Joined) (recovery Recovery, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.history.isJoining(f) {
		return Recovery{}, false
	}
	t.promoteLocked(f)
	read := len(j.Publications)
	if !j.Recovered { // the store was asked for more than the client receives
		read = min(t.pattern.maxMissed(f.conn), unrecoveredWork)
	}
	if !j.Recovered || !t.encodeMissed(f, nil, j.Publications) {
		return Recovery{Position: j.Position, read: read}, true
	}
	from := j.Position
	from.Offset -= uint64(len(j.Publications))
	return Recovery{Position: from, Recovered: true, Ended: j.Ended, read: read}, true
}

// promoteLocked makes a connection that is joining a follower, whose frames are held.
func (t *topic) promoteLocked(f *follower) {
	t.history.joining.remove(f.conn)
	t.members.remove(f.conn)
	if before := t.history.followers.put(f); before != nil {
		before.dropHeld()
	}
}

// encodeMissed encodes the publications that a follower has missed, to be sent after some frames. It
// reports false, and keeps none, if they are too many or too long for its send queue.
func (t *topic) encodeMissed(f *follower, frames []*wsconn.Frame, missed []broker.Publication) bool {
	c, bytes := f.conn, 0
	for _, p := range missed {
		frame := t.positionedFrame(c, p)
		if frame == nil {
			continue
		}
		frames = append(frames, frame)
		if bytes += len(frame.Text()); bytes > c.router.opts.Limits.QueueBytes/2 {
			break // follower.holdMissed rejects them
		}
	}
	return f.holdMissed(frames)
}

// positionedFrame encodes a stored publication for one connection: as a position only, if the
// publication lacks the connection's format, or as nothing, if its client does not expect that.
func (t *topic) positionedFrame(c *Conn, p broker.Publication) *wsconn.Frame {
	if frame := t.storedFrame(c, p); frame != nil {
		return frame
	}
	if !c.expectsPositions() {
		return nil
	}
	return t.positionFrame(c, protocol.Moved{Epoch: p.Position.Epoch, Offset: p.Position.Offset, Lost: &protocol.Lost{From: p.Position.Offset, To: p.Position.Offset}})
}

// storedFrame encodes a stored publication for one connection. It returns nil if the publication lacks
// the connection's format.
func (t *topic) storedFrame(c *Conn, p broker.Publication) *wsconn.Frame {
	_, packet := cutExcept(p.Packet)
	message, _, ok := c.router.formats.ParsePacket(packet, 1<<c.format, p.At)
	if !ok {
		return nil
	}
	defer message.Free()
	frame := t.positionedFrameOf(&message, c, p.Position.Offset)
	if frame != nil {
		frame.Retain()
	}
	return frame
}

// positionFrame encodes a position for a connection. It cannot fail: it contains only strings and
// numbers, and is JSON in every format.
func (t *topic) positionFrame(c *Conn, m protocol.Moved) *wsconn.Frame {
	m.Topic = clientTopic(t.name)
	return encodeProtocol(c.codec(), m)
}

// sendLocked queues a frame for a follower, which must not lose it: if it does not fit, the
// connection is closed, and the client recovers when it returns. It needs the topic's lock.
func (f *follower) sendLocked(frame *wsconn.Frame) bool {
	if f.held == nil {
		return f.conn.send(frame) == nil
	}
	if !f.holdNext(frame) {
		f.dropHeld()
		f.conn.Close(StatusTryAgainLater, transportReason(int(StatusTryAgainLater), "client reads too slowly"))
		return false
	}
	return true
}

// sendHeld sends what has been held for a follower whose answer has been queued.
func (ts *topics) sendHeld(name string, c *Conn) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	if t.history == nil {
		return
	}
	f := t.history.followers.find(c)
	if f == nil || f.held == nil {
		return
	}
	f.sendHeld()
	f.held = nil
	if f.rest != nil {
		go c.sendState(t, f.rest)
	}
}

// lose reports a loss to followers and to the application.
func (ts *topics) lose(t *topic, l sequencer.Loss) {
	m := protocol.Moved{Epoch: l.Position.Epoch, Offset: l.Position.Offset, Reset: l.Reset}
	switch {
	case l.Reset:
	case l.Epoch != "":
		m.Ended = &protocol.Position{Epoch: l.Epoch, Offset: l.EndedAt}
	default:
		m.Lost = &protocol.Lost{From: l.From, To: l.To}
	}
	t.movePosition(m)
	ts.messagesLost(t.name, lostMessages(l))
}
