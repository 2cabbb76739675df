package client

import (
	"context"
	"iter"
	"strconv"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/wire"
)

// streamCredit is how many items the server may send before the loop has handled them.
const streamCredit = 64

// Stream starts a stream and returns its items. An error ends it, and is the last element. The loop
// slows the server down: it sends at most 64 items that the loop has not received. Leaving the loop
// cancels the stream. A stream has no deadline unless ctx has one. It does not outlive the connection: it
// then ends with [ErrOutcomeUnknown].
func Stream[Item any](ctx context.Context, c *Client, m Message) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var none Item
		items := make(chan jsonv2.Value, streamCredit)
		cl := newCall(m.MessageType(), wire.TypeStreamEnd)
		tooMany := make(chan struct{})
		cl.item = func(item jsonv2.Value) {
			select {
			case items <- item:
			default: // the server has ignored the credits
				select {
				case <-tooMany:
				default:
					close(tooMany)
				}
			}
		}
		if err := c.startCall(ctx, cl, m, streamCredit); err != nil {
			yield(none, err)
			return
		}
		ended := false
		defer func() {
			if !ended {
				c.abandon(cl)
			}
		}()
		taken := 0
		pass := func(item jsonv2.Value) bool {
			var v Item
			if err := decode(item, &v); err != nil {
				yield(none, &errors.Error{Code: errors.Internal, Message: "an item cannot be decoded", Err: err})
				return false
			}
			if taken++; taken == streamCredit/2 {
				c.grant(cl, taken)
				taken = 0
			}
			return yield(v, nil)
		}
		for {
			select {
			case item := <-items:
				if !pass(item) {
					return
				}
			case a := <-cl.answered:
				ended = true
				for len(items) > 0 { // the end follows all items
					if !pass(<-items) {
						return
					}
				}
				if a.err != nil {
					yield(none, a.err)
				}
				return
			case <-tooMany:
				yield(none, errors.Errorf(errors.ResourceExhausted, "the server has sent more than the %s items that it was granted", strconv.Itoa(streamCredit)))
				return
			case <-ctx.Done():
				yield(none, contextError(ctx))
				return
			}
		}
	}
}

// grant permits the server to send more items.
func (c *Client) grant(cl *call, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[cl.id] == cl && cl.conn != nil {
		cl.conn.sendControl(wire.TypeCredit, cl.id, int64(n), nil)
	}
}
