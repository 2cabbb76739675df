package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/history"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file delivers publications with their positions to the clients that have asked for them, and
// what such a client has missed when it returns.

// A follower is a subscriber that receives positions. The topic's lock guards it.
type follower struct {
	held   bool            // until the answer to its request is queued
	frames []*wsconn.Frame // to be sent after that
}

// A resumed is the result of a subscription with positions.
type resumed struct {
	Epoch     string         `json:"epoch"`
	Offset    uint64         `json:"offset"`
	Recovered bool           `json:"recovered"`
	Ended     *endedPosition `json:"ended,omitempty"`
}

// An endedPosition is where an epoch has ended.
type endedPosition struct {
	Epoch  string `json:"epoch"`
	Offset uint64 `json:"offset"`
}

// A positionMessage moves the position of a client: to behind a loss, to another epoch, or past a
// publication that the client does not receive.
type positionMessage struct {
	Topic  string         `json:"topic"`
	Epoch  string         `json:"epoch"`
	Offset uint64         `json:"offset"`
	Lost   *lostOffsets   `json:"lost,omitempty"`
	Ended  *endedPosition `json:"ended,omitempty"`
	Reset  bool           `json:"reset,omitempty"`
}

// lostOffsets are the first and the last offset of what is lost.
type lostOffsets struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// MessageType returns the name of the message.
func (positionMessage) MessageType() string { return "$ws:position" }

func (positionMessage) protocol() {}

// subscribeSince subscribes a client that has received everything up to since, or that begins now if
// since is the zero Position. It waits for the store.
func (c *Conn) subscribeSince(ctx context.Context, topic string, since broker.Position) (resumed, error) {
	t, f, added, err := c.addFollower(topic)
	if err != nil {
		return resumed{}, err
	}
	var result resumed
	limit := min(t.pattern.opts.History.Messages, c.router.opts.Limits.QueueMessages/2)
	err = t.sequencer.Join(ctx, since, limit, func(j history.Joined) { result = t.activate(c, f, since, j) })
	switch {
	case err == nil:
		return result, nil
	case added:
		c.Unsubscribe(topic)
	default:
		t.removeJoining(c, f)
	}
	if ctx.Err() != nil {
		return resumed{}, context.Cause(ctx)
	}
	return resumed{}, &errors.Error{Code: errors.Unavailable, Message: "the history of the topic cannot be read", Err: err}
}

// addFollower subscribes the connection, and registers it as a follower to be. A connection that is
// not subscribed yet receives nothing before it is activated.
func (c *Conn) addFollower(topic string) (t *topic, f *follower, added bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, subscribed := c.topics[topic]
	if _, err := c.addSubscription(topic, true); err != nil {
		return nil, nil, false, err
	}
	t = c.router.topics.find(topic)
	f = new(follower)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joining == nil {
		t.joining = map[*Conn]*follower{}
	}
	t.joining[c] = f
	return t, f, !subscribed, nil
}

func (t *topic) removeJoining(c *Conn, f *follower) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joining[c] == f {
		delete(t.joining, c)
	}
}

// activate makes a subscriber a follower, and queues what it has missed. The sequencer calls it under
// its lock. The subscriber may have unsubscribed or have asked again meanwhile.
func (t *topic) activate(c *Conn, f *follower, since broker.Position, j history.Joined) resumed {
	t.mu.Lock()
	defer t.mu.Unlock()
	result := resumed{Epoch: j.Position.Epoch, Offset: j.Position.Offset, Recovered: j.Recovered}
	if t.joining[c] != f {
		return result
	}
	delete(t.joining, c)
	if t.followers == nil {
		t.followers = map[*Conn]*follower{}
	}
	f.held = true
	t.followers[c], t.members[c] = f, struct{}{}
	if !t.holdMissed(c, f, j.Publications) {
		result.Recovered = false
		return result
	}
	if j.Ended != nil {
		result.Ended = &endedPosition{j.Ended.Epoch, j.Ended.Offset}
	}
	if since.Epoch != "" && j.Recovered { // what follows the answer begins here
		result.Offset = j.Position.Offset - uint64(len(j.Publications))
	}
	return result
}

// holdMissed encodes the publications that a follower has missed. It reports false, and keeps none,
// if they are too long for its send queue.
func (t *topic) holdMissed(c *Conn, f *follower, missed []broker.Publication) bool {
	bytes := 0
	for _, p := range missed {
		frame := t.positionedFrame(c, p)
		f.frames = append(f.frames, frame)
		if bytes += len(frame.Text()); bytes > c.router.opts.Limits.QueueBytes/2 {
			f.release()
			return false
		}
	}
	return true
}

func (f *follower) release() {
	for _, frame := range f.frames {
		frame.Release()
	}
	f.frames = nil
}

// positionedFrame encodes a stored publication for one connection: as a position only, if the
// publication lacks the connection's format.
func (t *topic) positionedFrame(c *Conn, p broker.Publication) *wsconn.Frame {
	_, packet := cutExcept(p.Packet)
	message, _, ok := c.router.parseMessagePacket(packet, 1<<c.format, p.At)
	if ok {
		defer message.release()
		if frame := message.positioned(c.format, t.name, p.Position.Offset); frame != nil {
			frame.Retain()
			return frame
		}
	}
	return t.positionFrame(c, positionMessage{Epoch: p.Position.Epoch, Offset: p.Position.Offset, Lost: &lostOffsets{p.Position.Offset, p.Position.Offset}})
}

// positionFrame encodes a position for a connection. It cannot fail: it contains only strings and
// numbers, and is JSON in every format.
func (t *topic) positionFrame(c *Conn, m positionMessage) *wsconn.Frame {
	m.Topic = t.name
	return encodeProtocol(c.codec(), m)
}

// sendFollower queues a frame for a follower, which must not lose it: if it does not fit, the
// connection is closed, and the client recovers when it returns. t.mu must be held.
func (f *follower) send(c *Conn, frame *wsconn.Frame) bool {
	if !f.held {
		return c.send(frame) == nil
	}
	if len(f.frames) >= c.router.opts.Limits.QueueMessages {
		f.release()
		frame.Release()
		c.Close(StatusTryAgainLater, transportReason(int(StatusTryAgainLater), "client reads too slowly"))
		return false
	}
	f.frames = append(f.frames, frame)
	return true
}

// releaseFollower sends what has been held for a follower whose answer has been queued.
func (ts *topics) releaseFollower(name string, c *Conn) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	f := t.followers[c]
	if f == nil || !f.held {
		return
	}
	f.held = false
	for _, frame := range f.frames {
		_ = c.send(frame) // fails only if the connection is closed
	}
	f.frames = nil
}

// lose reports a loss to followers and to the application.
func (ts *topics) lose(t *topic, l history.Loss) {
	m := positionMessage{Epoch: l.Position.Epoch, Offset: l.Position.Offset, Reset: l.Reset}
	switch {
	case l.Reset:
	case l.Epoch != "":
		m.Ended = &endedPosition{l.Epoch, l.EndedAt}
	default:
		m.Lost = &lostOffsets{l.From, l.To}
	}
	t.mu.Lock()
	for c, f := range t.followers {
		f.send(c, t.positionFrame(c, m))
	}
	t.mu.Unlock()
	ts.messagesLost(t.name, lostMessages(l))
}

// positioned returns the frame for a format with a topic and an offset in its meta, encoded once. It
// returns nil if the publication lacks the format.
func (p *publication) positioned(f format, topic string, offset uint64) *wsconn.Frame {
	if frame := p.withPosition[f]; frame != nil {
		return frame
	}
	plain := p.frame(f)
	if plain == nil {
		return nil
	}
	add := wire.AppendPositioned
	if f != formatJSON {
		add = wire.AppendPositionedBinary
	}
	frame, ok := wsconn.NewFrame(), false
	frame.At = plain.At
	frame.Append(func(b []byte) []byte {
		b, ok = add(b, plain.Text(), topic, offset)
		return b
	})
	if !ok {
		frame.Release()
		return nil
	}
	if f == formatJSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	if p.withPosition == nil {
		p.withPosition = map[format]*wsconn.Frame{}
	}
	p.withPosition[f] = frame
	return frame
}
