package ask

import (
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// This file decodes the answers of clients. A client chooses everything in them, so what is wrong with an answer is
// private.

// A ReplyType is the type of the replies to a call.
type ReplyType struct {
	reflect.Type

	Validate func(reply any) error // of a pointer to a reply
}

// A decoder decodes replies of a type.
type decoder struct {
	node     *Node
	name     string // of the messages
	decoding envelope.Decoding
	validate func(reply any) error
}

func (n *Node) decoderOf(typ ReplyType) (*decoder, error) {
	if typ.Kind() == reflect.Interface || typ.Kind() == reflect.Pointer && typ.Elem().Implements(reflect.TypeFor[envelope.Message]()) {
		err := fmt.Errorf("router: Call: the reply %v is not a value type; messages are received by value", typ)
		return nil, &errors.Error{Code: errors.Internal, Err: err}
	}
	d := &decoder{node: n, decoding: envelope.DecodingOf(typ.Type, n.config.RejectUnknown), validate: typ.Validate}
	zero := reflect.Zero(typ.Type)
	if d.decoding.OfPointer() {
		zero = reflect.New(typ.Elem())
	}
	var err error
	d.name, err = envelope.MessageType(zero.Interface().(envelope.Message))
	return d, err
}

// answer decodes and validates the answer of a client of this node, and releases it. It returns a pointer to the reply.
func (d *decoder) answer(c *Called, answer wsconn.Message) (reply any, err error) {
	defer answer.Release()
	if answer.Binary {
		return d.decode(d.node.config.Formats.Codec(c.Format), wire.Parse, answer.Bytes, c.ConnID)
	}
	return d.decode(nil, wire.ParseText, answer.Bytes, c.ConnID) // the transport has checked the UTF-8
}

// outcome decodes and validates the answer of a client of any node, or returns the error. It returns a pointer to the reply.
func (d *decoder) outcome(o *Outcome) (reply any, err error) {
	if o.Err != nil {
		return nil, o.Err
	}
	formats := d.node.config.Formats
	f, known := formats.BySubprotocol([]byte(o.Subprotocol))
	if !known {
		return nil, invalidAnswer(fmt.Errorf("this node has no codec for its subprotocol %q; all nodes must have the same Options.Codecs", o.Subprotocol))
	}
	return d.decode(formats.Codec(f), wire.Parse, o.Message, o.ConnID)
}

// decode decodes and validates an answer like a message of a route. parse is for JSON. A panic of a Validate method is an
// error: the caller may have a goroutine of its own, which must not end because of what a client sends.
func (d *decoder) decode(codec envelope.Codec, parse func([]byte) (wire.Envelope, error), text []byte, connID string) (reply any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &errors.Error{Code: errors.Internal, Err: failure.NewPanic(v, debug.Stack())}
			d.node.config.Observe(observe.Event{Kind: observe.Panicked, Type: protocol.TypeAnswer, Reason: "decode"})
		}
	}()
	if codec != nil {
		parse = wire.ParseBinary
	}
	answer, err := parse(text)
	if err != nil {
		return nil, invalidAnswer(err)
	}
	payload, err := answerPayload(&answer, d.name, connID)
	if err != nil {
		return nil, err
	}
	if limit := d.node.config.Elements; d.decoding.Elements(codec, payload, limit) > limit {
		return nil, invalidAnswer(fmt.Errorf("the payload has more than %d elements, set by router.Limits.Elements", limit))
	}
	if reply, err = d.decoding.Decode(codec, payload, nil); err != nil {
		return nil, invalidAnswer(err)
	}
	if err := d.validate(reply); err != nil {
		return nil, invalidAnswer(err)
	}
	return reply, nil
}

// invalidAnswer returns the error for an answer that is not what it should be. It is neither
// INVALID_ARGUMENT, which would blame the client whose message is being handled, nor INTERNAL,
// because the server works.
func invalidAnswer(cause error) *errors.Error {
	return &errors.Error{
		Code:    errors.FailedPrecondition,
		Message: "the client's answer is not valid",
		Err:     failure.Quote(fmt.Errorf("router: answer of a client: %w", cause), "router: the answer of a client is not valid"),
	}
}

// answerPayload returns the payload of an answer, or nil if it has none. It returns the error of
// the client if that is the answer.
func answerPayload(answer *wire.Envelope, want, connID string) ([]byte, error) {
	switch typ := string(answer.Type); typ {
	case want:
		return answer.Payload, nil
	case protocol.TypeError, protocol.TypeRPCError:
		e, err := envelope.DecodeError(answer.Payload)
		if err != nil {
			return nil, invalidAnswer(err)
		}
		e.Err = &failure.ClientAnswer{ConnID: connID}
		return nil, e
	default:
		return nil, invalidAnswer(fmt.Errorf("its type is %q; it must be %q or an error", typ, want))
	}
}
