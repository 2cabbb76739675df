package topic

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file delivers publications with their positions to the clients that have asked for them, and
// what such a client has missed when it returns.

// A follower is a subscriber that receives positions. The topic's lock guards it.
type follower struct {
	conn    *Subscriber
	holding *Holding    // of the connection
	held    *heldFrames // nil once the answer to its request is queued

	// rest is what is still to be sent of the state, nil if there is nothing: see StateSender.
	rest *sequencer.StateRest

	// added is set while it waits for the store and nothing else has subscribed its connection.
	added bool
}

// connNumber returns the number by which a connList sorts.
func (f *follower) connNumber() uint64 { return f.conn.Number }

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
	own       ownPublications
}

// isJoining reports whether the subscriber has not unsubscribed or asked again since it began to wait.
func (h *topicHistory) isJoining(f *follower) bool { return h.joining.find(f.conn) == f }

// remove removes what is kept for a connection.
func (h *topicHistory) remove(c *Subscriber) {
	h.joining.remove(c)
	if f := h.followers.find(c); f != nil {
		f.dropHeld()
		h.followers.remove(c)
	}
}

// addJoining registers a subscriber as a follower to be, and returns the follower. It replaces one that waits.
func (t *Topic) addJoining(c *Subscriber, h *Holding, added bool) *follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{conn: c, holding: h, held: new(heldFrames), added: added}
	if before := t.history.joining.find(c); before != nil {
		f.added = added || before.added
	}
	t.history.joining.put(f)
	return f
}

// subscribeJoining makes a connection that waits for the store receive what is published, and stay subscribed
// whatever becomes of the waiting.
func (t *Topic) subscribeJoining(c *Subscriber) {
	if t.history == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.history.joining.find(c); f != nil && f.added {
		f.added = false
		t.members.put(c)
	}
}

// unrecoveredWork is how many publications a client is charged for that cannot receive what it has
// missed.
const unrecoveredWork = 256

// activate makes a subscriber a follower, and holds what it has missed. The sequencer calls it under
// its lock. It reports false if the subscriber has unsubscribed or has asked again meanwhile.
func (ts *Topics) activate(t *Topic, f *follower, j sequencer.Joined) (result JoinResult, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.history.isJoining(f) {
		return JoinResult{}, false
	}
	t.promoteLocked(f)
	read := len(j.Publications)
	if j.Last {
		for !ts.encodeMissed(t, f, nil, j) && len(j.Publications) > 0 { // until there is room
			j.Publications = j.Publications[(len(j.Publications)+1)/2:]
		}
		return JoinResult{Position: before(j.Position, j.Publications), Recovered: j.Recovered, Read: read}, true
	}
	if !j.Recovered { // the store was asked for more than the client receives
		read = min(ts.MaxMissed(t.Pattern), unrecoveredWork)
	}
	if !j.Recovered || !ts.encodeMissed(t, f, nil, j) {
		return JoinResult{Position: j.Position, Read: read}, true
	}
	return JoinResult{Position: before(j.Position, j.Publications), Recovered: true, Ended: j.Ended, Read: read}, true
}

// before returns the position that the latest publications follow, of which the last one has a position.
func before(last broker.Position, publications []broker.Publication) broker.Position {
	last.Offset -= uint64(len(publications))
	return last
}

// followFromNow makes a subscriber a follower when the position of the topic is known. announce
// returns the frame that says so, which is sent first. It is called under the locks of the
// sequencer and of the topic.
func (ts *Topics) followFromNow(t *Topic, c *Subscriber, h *Holding, announce func(at broker.Position) *wsconn.Frame) {
	f := t.addJoining(c, h, false)
	wanted := func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.history.isJoining(f)
	}
	t.history.sequencer.WhenAttached(wanted, func(at broker.Position) { ts.activateFromNow(t, f, at, announce) })
}

func (ts *Topics) activateFromNow(t *Topic, f *follower, at broker.Position, announce func(at broker.Position) *wsconn.Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.history.isJoining(f) {
		return
	}
	if before := t.history.followers.find(f.conn); before != nil {
		t.history.joining.remove(f.conn)
		f = before // what it holds, and what it has still to receive of a state, are sent
	} else {
		t.promoteLocked(f)
		f.held = nil // there is no answer to wait for
	}
	ts.sendLocked(f, announce(at))
}

// promoteLocked makes a connection that is joining a follower, whose frames are held.
func (t *Topic) promoteLocked(f *follower) {
	t.history.joining.remove(f.conn)
	t.members.remove(f.conn)
	if before := t.history.followers.put(f); before != nil {
		before.dropHeld()
	}
}

// encodeMissed encodes the publications that a follower has missed, to be sent after some frames. It
// reports false, and keeps none, if they are too many or too long for its send queue.
func (ts *Topics) encodeMissed(t *Topic, f *follower, frames []*wsconn.Frame, j sequencer.Joined) bool {
	bytes := 0
	for _, p := range j.Publications {
		p.Position.Epoch = j.Position.Epoch // that of the answer; the first ones may be of the epoch before
		frame := ts.missedFrame(t, f.conn, p)
		if frame == nil {
			continue
		}
		frames = append(frames, frame)
		if bytes += len(frame.Text()); bytes > ts.config.QueueBytes/2 {
			break // holdMissed holds none then
		}
	}
	return ts.holdMissed(f, frames)
}

// missedFrame encodes a stored publication for one connection: as a position only, if the publication excepts
// the connection or lacks its format, or as nothing, if its client does not expect that.
func (ts *Topics) missedFrame(t *Topic, c *Subscriber, p broker.Publication) *wsconn.Frame {
	id, _ := CutExcept(p.Packet)
	excepted := id != "" && ts.config.ByID(id) == c
	if !excepted {
		if frame := ts.storedFrame(t, c, p); frame != nil {
			return frame
		}
	}
	if !c.expectsPositions() {
		return nil
	}
	m := protocol.Moved{Epoch: p.Position.Epoch, Offset: p.Position.Offset}
	if !excepted {
		m.Lost = &protocol.Lost{From: m.Offset, To: m.Offset}
	}
	return ts.positionFrame(t, c, m)
}

// storedFrame encodes a stored publication for one connection. It returns nil if the publication lacks
// the connection's format.
func (ts *Topics) storedFrame(t *Topic, c *Subscriber, p broker.Publication) *wsconn.Frame {
	_, packet := CutExcept(p.Packet)
	message, _, ok := ts.config.Formats.ParsePacket(packet, 1<<c.Format, p.At)
	if !ok {
		return nil
	}
	defer message.Free()
	frame := t.positionedFrame(&message, c, p.Position.Offset)
	if frame != nil {
		frame.Retain()
	}
	return frame
}

// HasStarted reports whether AwaitStart has nothing to wait for.
func (t *Topic) HasStarted() bool {
	if t.history == nil {
		return true
	}
	_, known := t.history.sequencer.Position()
	return known
}

// AwaitStart waits until the topic delivers everything that is published from now on, on any node: on the first
// subscriber of this node, it reads the position of a topic with a History. The error is the cause of ctx, or
// ErrUnsubscribed if the topic has no subscriber any more.
func (t *Topic) AwaitStart(ctx context.Context) error {
	if t.history == nil {
		return nil
	}
	err := t.history.sequencer.AwaitAttached(ctx)
	if errors.Is(err, sequencer.ErrClosed) {
		return ErrUnsubscribed
	}
	return err
}

// positionFrame encodes a position for a connection. It cannot fail: it contains only strings and
// numbers, and is JSON in every format.
func (ts *Topics) positionFrame(t *Topic, c *Subscriber, m protocol.Moved) *wsconn.Frame {
	m.Topic = topicname.ForClient(t.Name)
	return ts.encode(c.Format, m)
}

// sendLocked queues a frame for a follower, which must not lose it: if it does not fit, the
// connection is closed, and the client recovers when it returns. It needs the topic's lock.
func (ts *Topics) sendLocked(f *follower, frame *wsconn.Frame) bool {
	if f.held == nil {
		return f.conn.queue(frame)
	}
	if !ts.holdNext(f, frame) {
		f.dropHeld()
		f.conn.WS.CloseSlow()
		return false
	}
	return true
}

// SendHeld sends what has been held for a follower whose answer has been queued. It returns what
// sends the rest of the state, or nil if there is none.
func (ts *Topics) SendHeld(name string, c *Subscriber) *StateSender {
	t := ts.lock(name)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	if t.history == nil {
		return nil
	}
	f := t.history.followers.find(c)
	if f == nil || f.held == nil {
		return nil
	}
	f.sendHeld()
	f.held = nil
	if f.rest == nil {
		return nil
	}
	return &StateSender{topics: ts, conn: c, holding: f.holding, Topic: t, rest: f.rest}
}

// lose reports a loss to followers and to the application.
func (ts *Topics) lose(t *Topic, l sequencer.Loss) {
	t.history.own.forgetAll()
	m := protocol.Moved{Epoch: l.Position.Epoch, Offset: l.Position.Offset, Reset: l.Reset}
	switch {
	case l.Reset:
	case l.Epoch != "":
		m.Ended = &protocol.Position{Epoch: l.Epoch, Offset: l.EndedAt}
	default:
		m.Lost = &protocol.Lost{From: l.From, To: l.To}
	}
	ts.movePosition(t, m)
	ts.config.Lost(t.Name, l.Messages())
}
