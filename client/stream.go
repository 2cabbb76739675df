//go:build !js

package client

import (
	"context"
	"iter"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// streamCredit is how many items the server may send before the loop has received them.
const streamCredit = 64

var errOverflow = &errors.Error{Code: errors.ResourceExhausted, Message: "the server has sent more items than it was granted"}

// Stream starts a stream and returns its items. An error ends it, and is the last element. The loop
// slows the server down: it sends at most 64 items that the loop has not received. Leaving the loop
// cancels the stream. A stream has no deadline unless ctx has one. It does not outlive the connection: it
// then ends with [ErrOutcomeUnknown]. A reply of the stream is ignored; see [StreamReply].
func Stream[Item any](ctx context.Context, c *Client, m Message) iter.Seq2[Item, error] {
	return streamOf[Item](ctx, c, m, anyReply, nil)
}

// StreamReply is [Stream] for a stream that ends with a reply, or for a call whose handler sends
// progress messages. reply has the reply when the loop has ended without an error and was not left.
// Progress messages need no credits: a loop that is more than 64 of them behind ends with RESOURCE_EXHAUSTED.
func StreamReply[Item any, Reply Message](ctx context.Context, c *Client, m Message, reply *Reply) iter.Seq2[Item, error] {
	return streamOf[Item](ctx, c, m, (*reply).MessageType(), reply)
}

// streamOf returns the items of a stream, whose reply must have a type and is decoded into reply unless that is nil.
func streamOf[Item any](ctx context.Context, c *Client, m Message, replyType string, reply any) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		s := &stream[Item]{
			client: c, call: newCall(m.MessageType(), replyType), yield: yield, reply: reply,
			items: make(chan payload, streamCredit), overflow: make(chan struct{}, 1),
		}
		s.call.item = s.receive
		if err := c.startCall(ctx, s.call, m, streamCredit); err != nil {
			s.fail(err)
			return
		}
		defer s.cancel() // even if the loop panics
		s.run(ctx)
	}
}

// A stream passes the items of a stream to a loop.
type stream[Item any] struct {
	client   *Client
	call     *call
	yield    func(Item, error) bool
	reply    any // a pointer to the reply, or nil
	items    chan payload
	overflow chan struct{} // the server has ignored the credits
	taken    int           // items for which no credits have been granted again
	ended    bool          // by the server
}

// receive takes an item on the reading goroutine, which must not wait for the loop.
func (s *stream[Item]) receive(item payload) {
	if len(s.overflow) > 0 { // one before is missing
		return
	}
	select {
	case s.items <- item:
	default:
		notify(s.overflow)
	}
}

// run passes items on until the stream ends or the loop is left.
func (s *stream[Item]) run(ctx context.Context) {
	for {
		select {
		case item := <-s.items:
			if !s.pass(item) {
				return
			}
		case a := <-s.call.answered:
			s.ended = true
			s.finish(a)
			return
		case <-s.overflow:
			s.fail(errOverflow)
			return
		case <-ctx.Done():
			s.ended = true
			s.fail(contextError(ctx, s.client.abandon(s.call)))
			return
		}
	}
}

// finish passes on the items that precede the answer, and the answer if it is an error. Otherwise it decodes the reply.
func (s *stream[Item]) finish(a answer) {
	for len(s.items) > 0 {
		if !s.pass(<-s.items) {
			return
		}
	}
	if len(s.overflow) > 0 { // an item is missing
		a.err = errOverflow
	}
	if a.err == nil && s.reply != nil {
		a.err = a.decode(s.reply)
	}
	if a.err != nil {
		s.fail(a.err)
	}
}

// pass passes an item to the loop, and reports whether the loop continues.
func (s *stream[Item]) pass(item payload) bool {
	var v Item
	if err := item.decode(&v); err != nil {
		s.fail(&errors.Error{Code: errors.Internal, Message: "an item cannot be decoded", Err: err})
		return false
	}
	if s.taken++; s.taken == streamCredit/2 {
		s.client.grant(s.call, s.taken)
		s.taken = 0
	}
	return s.yield(v, nil)
}

func (s *stream[Item]) fail(err error) {
	var none Item
	s.yield(none, err)
}

// cancel makes the server stop, unless it has.
func (s *stream[Item]) cancel() {
	if !s.ended {
		_ = s.client.abandon(s.call)
	}
}

// grant permits the server to send more items.
func (c *Client) grant(cl *call, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[cl.id] == cl && cl.conn != nil {
		cl.conn.sendControlLocked(protocol.TypeCredit, cl.id, int64(n), nil)
	}
}
