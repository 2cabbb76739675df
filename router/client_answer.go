package router

import (
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router/observe"
)

// This file receives the answers to calls of the server. A client chooses everything in them, so what is
// wrong with an answer is private.

// decodeAnswer decodes and validates the answer to a call like a message of the route, and releases
// it. It returns a pointer to the reply.
func (r *Router) decodeAnswer(rt *Route, in *incoming, connID string) (reply any, err error) {
	defer in.release()
	defer r.recoverAnswer(&err)
	envelope, err := in.parse()
	if err != nil {
		return nil, invalidAnswer(err)
	}
	return r.decodeReply(rt, in.codec, &envelope, connID)
}

// decodeReply decodes and validates the envelope of an answer. It must be called with recoverAnswer
// deferred.
func (r *Router) decodeReply(rt *Route, codec Codec, answer *wire.Envelope, connID string) (reply any, err error) {
	payload, err := answerPayload(answer, rt.name, connID)
	if err != nil {
		return nil, err
	}
	if err = rt.decoding.CheckElements(codec, payload, r.opts.Limits.Elements); err != nil {
		return nil, invalidAnswer(err)
	}
	if reply, err = rt.decoding.Decode(codec, payload, nil); err != nil {
		return nil, invalidAnswer(err)
	}
	if err := rt.validate(reply, r.opts.Validate); err != nil {
		return nil, invalidAnswer(err)
	}
	return reply, nil
}

// replyRoute returns a route that is not registered. It decodes replies of a type.
func replyRoute(r *Router, reply receivedType) (*Route, error) {
	typ := reply.Type
	if typ.Kind() == reflect.Interface || typ.Kind() == reflect.Pointer && typ.Elem().Implements(reflect.TypeFor[Message]()) {
		err := fmt.Errorf("router: Call: the reply %v is not a value type; messages are received by value", typ)
		return nil, &errors.Error{Code: errors.Internal, Err: err}
	}
	rt := new(Route)
	setType(rt, reply, r.opts.RejectUnknownFields)
	zero := reflect.Zero(typ)
	if rt.decoding.OfPointer() {
		zero = reflect.New(typ.Elem())
	}
	var err error
	rt.name, err = envelope.MessageType(zero.Interface().(Message))
	return rt, err
}

// recoverAnswer turns a panic of a Validate method or of Options.Validate into an error: the caller
// may have a goroutine of its own, which must not end because of what a client sends. It must be
// deferred.
func (r *Router) recoverAnswer(err *error) {
	if v := recover(); v != nil {
		*err = &errors.Error{Code: errors.Internal, Err: failure.NewPanic(v, debug.Stack())}
		r.observe(observe.Event{Kind: observe.Panicked, Type: protocol.TypeAnswer, Reason: "decode"})
	}
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
func answerPayload(envelope *wire.Envelope, want, connID string) ([]byte, error) {
	switch typ := string(envelope.Type); typ {
	case want:
		return envelope.Payload, nil
	case protocol.TypeError, protocol.TypeRPCError:
		return nil, clientError(envelope.Payload, connID)
	default:
		return nil, invalidAnswer(fmt.Errorf("its type is %q; it must be %q or an error", typ, want))
	}
}

// clientError decodes the error with which a client answers a call.
func clientError(payload []byte, connID string) *errors.Error {
	e, err := envelope.DecodeError(payload)
	if err != nil {
		return invalidAnswer(err)
	}
	e.Err = &failure.ClientAnswer{ConnID: connID}
	return e
}
