package topic

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file sends what follows the first part of a state to clients that have joined, as fast as
// they read.

// maxFrameHeader is the length of what precedes the text of a frame in the send queue.
const maxFrameHeader = 10

// statePartBytes bounds the part of a state that is read at once: two fit into half of the send queue.
func (ts *Topics) statePartBytes() int { return min(broker.DefaultStateBytes, ts.config.QueueBytes/4) }

// A StateSender sends what is left of a state. Its goroutine ends when it has, when the client has
// unsubscribed, has asked again or is disconnected, or with an error that ends the subscription.
type StateSender struct {
	topics  *Topics
	conn    *Subscriber
	holding *Holding // of the connection
	Topic   *Topic
	rest    *sequencer.StateRest

	frames  map[uint64]*wsconn.Frame // of the part, by offset
	longest int                      // bytes of a frame
	unsent  int                      // publications of the part
	ended   bool                     // the client has the state, or does not want it any more
}

// Run sends what is left of a state, until ctx ends with the connection. After an error, the
// subscription must end, unless the client does not want the state any more. The error is
// wsconn.ErrTimeout if the client makes no room.
func (s *StateSender) Run(ctx context.Context) error {
	defer s.rest.Close()
	var err error
	for err == nil && !s.ended {
		err = s.sendPart(ctx)
	}
	if err == nil || errors.Is(err, sequencer.ErrClosed) || errors.Is(err, wsconn.ErrClosed) || ctx.Err() != nil {
		return nil
	}
	return err
}

// sendPart reads and sends one part. The parts for a connection take turns, so that it holds one of
// them, whatever the number of its topics.
func (s *StateSender) sendPart(ctx context.Context) error {
	turn, done := s.holding.turn, ctx.Done()
	select {
	case turn <- struct{}{}:
	case <-done:
		return ctx.Err()
	}
	defer func() { <-turn }()
	defer s.release()
	if err := s.read(ctx); err != nil {
		return err
	}
	for {
		var err error
		if waited := s.conn.WS.InTurn(done, s.hasRoom, func() { err = s.rest.Send(s.queue) }); waited != nil {
			err = waited
		}
		if err != nil || s.ended || s.unsent == 0 && !s.rest.IsLast() {
			return err
		}
	}
}

// read reads and encodes a part.
func (s *StateSender) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.topics.config.ReadTimeout, errStateUnread)
	defer cancel()
	part, err := s.rest.Read(ctx)
	if err != nil {
		return err
	}
	s.frames, s.longest = make(map[uint64]*wsconn.Frame, len(part)), 0
	for _, p := range part {
		frame := s.topics.storedFrame(s.Topic, s.conn, p)
		if frame == nil {
			return s.Topic.stateLacksFormat(p.Position)
		}
		s.frames[p.Position.Offset] = frame
		s.longest = max(s.longest, len(frame.Text())+maxFrameHeader)
	}
	if s.longest > s.topics.config.QueueBytes {
		return s.topics.config.QueueExceeded(s.longest)
	}
	return nil
}

// errStateUnread ends a subscription whose state the store has not returned.
var errStateUnread = &errors.Error{
	Code: errors.Unavailable, Message: "the state of the topic cannot be read at the moment",
	Err: errors.New("router: the broker has not returned a part of a state within Timeouts.Call"),
}

// hasRoom reports whether any frame of the part fits into the queue, together with what followers
// hold, which is queued when their answers are.
func (s *StateSender) hasRoom(messages, bytes int) bool {
	heldMessages, heldBytes := s.holding.add(0, 0)
	return s.fits(messages+heldMessages+1, bytes+heldBytes+s.longest, 1)
}

// fits reports whether messages fill at most a fraction of the send queue.
func (s *StateSender) fits(messages, bytes, fraction int) bool {
	return messages <= s.topics.config.QueueMessages/fraction && bytes <= s.topics.config.QueueBytes/fraction
}

// queue queues what fits into half of the send queue, and at least one publication if that fits at
// all. The end has a turn of its own. The sequencer calls queue under its lock, so that nothing
// that was published before is queued later.
func (s *StateSender) queue(part []broker.Publication) (sent int) {
	s.Topic.mu.Lock()
	defer s.Topic.mu.Unlock()
	switch {
	case !s.isWantedLocked():
		s.ended = true
		return 0
	case len(part) == 0 && s.rest.IsLast():
		s.endLocked()
		return 0
	}
	fraction := 1
	for _, p := range part {
		if !s.queueFrame(s.frames[p.Position.Offset], fraction) {
			break
		}
		delete(s.frames, p.Position.Offset)
		sent, fraction = sent+1, 2
	}
	s.unsent = len(part) - sent
	return sent
}

// queueFrame queues a frame if it fits into a fraction of the send queue, with what followers hold.
func (s *StateSender) queueFrame(frame *wsconn.Frame, fraction int) bool {
	size := len(frame.Text()) + maxFrameHeader
	messages, bytes := s.holding.add(1, size)
	defer s.holding.add(-1, -size)
	queue := s.conn.WS.QueueStats()
	if !s.fits(queue.Messages+messages, queue.Bytes+bytes, fraction) {
		return false
	}
	s.conn.queue(frame) // fails only if the connection is closed
	return true
}

// isWantedLocked reports whether the client has neither unsubscribed nor asked again. It needs the
// topic's lock.
func (s *StateSender) isWantedLocked() bool {
	f := s.Topic.history.followers.find(s.conn)
	return f != nil && f.rest == s.rest
}

// endLocked notifies the client that it has the whole state. It needs the topic's lock.
func (s *StateSender) endLocked() {
	f := s.Topic.history.followers.find(s.conn)
	f.rest = nil
	s.ended = true
	if s.conn.expectsPositions() {
		s.topics.sendLocked(f, s.topics.encode(s.conn.Format, protocol.StateComplete{Topic: s.Topic.Name}))
	}
}

// release drops the frames of keys that have changed, and those that are not sent.
func (s *StateSender) release() {
	for _, frame := range s.frames {
		frame.Release()
	}
	s.frames = nil
}

// IsWanted reports whether the client has neither unsubscribed nor asked again, nor does so now.
func (s *StateSender) IsWanted() bool {
	s.Topic.mu.Lock()
	defer s.Topic.mu.Unlock()
	return s.isWantedLocked() && s.Topic.history.joining.find(s.conn) == nil
}
