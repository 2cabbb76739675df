package router

import (
	"bytes"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file handles the control messages of the protocol: they have no handler of the application,
// and take effect on the reading goroutine as soon as ingress has admitted them, before messages
// that wait.

// controlOf returns the type of a control message, or "" for any other message.
func controlOf(head *wire.Head) string {
	if bytes.HasPrefix(head.CorrelationID, []byte(protocol.AnswerPrefix)) {
		return protocol.TypeAnswer
	}
	switch string(head.Type) {
	case protocol.TypeHeartbeat:
		return protocol.TypeHeartbeat
	case protocol.TypeAbort:
		return protocol.TypeAbort
	case protocol.TypeCredit:
		return protocol.TypeCredit
	case protocol.TypeAck:
		return protocol.TypeAck
	default:
		return ""
	}
}

// handleControl is the last stage of a control message. It returns the refusal if it has one.
func (c *Conn) handleControl(in *incoming) *failure.Failure {
	in.head.FindMeta(in.Bytes)
	if in.control == protocol.TypeCredit && !in.head.HasCredit {
		return inspector.Inspect(errNoCredit, "parse")
	}
	if failure := c.acknowledge(in); failure != nil {
		return failure
	}
	switch in.control {
	case protocol.TypeHeartbeat:
		c.queueAnswer(func() *wsconn.Frame { return envelope.EncodeHeartbeatAck(c.binary(), in.At) })
		c.member.WS.Wake()
	case protocol.TypeAbort:
		c.abort(string(in.head.CorrelationID))
	case protocol.TypeCredit:
		c.grantCredit(string(in.head.CorrelationID), in.head.Credit)
	case protocol.TypeAck:
		c.member.AcknowledgeResume(string(in.head.CorrelationID))
	}
	c.reportCompleted(in.ctx, in.control, "")
	if in.control == protocol.TypeAnswer && c.extra().clientCalls.Load().Deliver(string(in.head.CorrelationID), in.Message) {
		in.Message = wsconn.Message{} // belongs to the caller
	}
	in.release()
	c.release()
	return nil
}

// errNoCredit refuses a message that grants credits without a number.
var errNoCredit = errors.InvalidField("meta.credit", "is missing")

// errAckWithoutID refuses a message that asks for an acknowledgment which the client could not
// match with it.
var errAckWithoutID = &errors.Error{Code: errors.InvalidArgument, Message: "meta.ack requires meta.correlationId"}

// acknowledge acknowledges a message that stages 1 to 5 have admitted, if the client asks for it.
func (c *Conn) acknowledge(in *incoming) *failure.Failure {
	switch {
	case !in.head.Ack:
		return nil
	case len(in.head.CorrelationID) == 0:
		return failure.Of(errAckWithoutID).At("parse")
	}
	c.queueAnswer(func() *wsconn.Frame {
		return envelope.EncodeControl(c.binary(), protocol.TypeAck, string(in.head.CorrelationID))
	})
	c.member.WS.Wake()
	return nil
}
