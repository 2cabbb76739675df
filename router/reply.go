package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// encodeReply encodes the reply of a call. It computes the time from that of the call: reading
// only the monotonic clock takes half as long as reading both clocks.
func encodeReply(ctx *Context) (*wsconn.Frame, error) {
	head := wire.OutgoingHead{CorrelationID: ctx.call.ID, At: ctx.call.ReceivedAt.Add(time.Since(ctx.call.ReceivedAt))}
	codec := ctx.conn.codec()
	if codec == nil && ctx.call.Reply == replyInline {
		return ctx.route.replyJSON.EncodePointer(ctx.reply, head)
	}
	reply := ctx.Reply()
	if reply == nil {
		return nil, errNoReply
	}
	return envelope.Encode(codec, reply, head)
}
