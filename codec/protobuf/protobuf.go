// Package protobuf is the payload format Protocol Buffers for router.Options.Codecs, for messages
// that protoc-gen-go has generated. A client chooses it with the subprotocol penstock.v1.protobuf.
//
// A generated type becomes a message with a method in another file of its package. Its receiver is a
// pointer, and the type is registered and sent as a pointer:
//
//	func (*Say) MessageType() string { return "SAY" }
//
//	router.On(r, func(ctx *router.Context, m *Say) error { … })
//
// Registration panics if a type is not a [proto.Message], unless it has no fields and so no payload.
//
// Clients with other formats encode the exported fields of the generated struct, which is correct
// JSON only for messages without oneof, maps of messages, well-known types and bytes. The JSON mapping
// of Protocol Buffers needs two further methods:
//
//	func (m *Say) MarshalJSON() ([]byte, error)  { return protojson.Marshal(m) }
//	func (m *Say) UnmarshalJSON(b []byte) error { return protojson.Unmarshal(b, m) }
package protobuf

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Subprotocol is the subprotocol by which clients choose Protocol Buffers.
const Subprotocol = "penstock.v1.protobuf"

// maxDepth bounds the nesting of messages.
const maxDepth = 64

// A Codec is the [router.Codec] of Protocol Buffers. The zero value is ready to use, and safe for
// concurrent use.
type Codec struct{}

var _ router.Codec = Codec{}

// Subprotocol returns [Subprotocol].
func (Codec) Subprotocol() string { return Subprotocol }

// Marshal encodes v, which must be a [proto.Message]. Equal messages have equal encodings in one
// build of a program.
func (Codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, notProto(reflect.TypeOf(v))
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Unmarshal decodes payload into v, which must be a [proto.Message]. An empty payload is a message
// whose fields have their default values. Messages may be nested up to 64 levels deep.
func (Codec) Unmarshal(payload []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return &errors.Error{Code: errors.Internal, Err: notProto(reflect.TypeOf(v))}
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(payload, m); err != nil {
		return errors.InvalidField("payload", "is not valid for this message in Protocol Buffers")
	}
	return nil
}

// Check returns an error if t does not implement [proto.Message].
func (Codec) Check(t reflect.Type) error {
	if !t.Implements(reflect.TypeFor[proto.Message]()) {
		return notProto(t)
	}
	return nil
}

// notProto returns the error for a type that is no message of Protocol Buffers.
func notProto(t reflect.Type) error {
	if t != nil && reflect.PointerTo(t).Implements(reflect.TypeFor[proto.Message]()) {
		return fmt.Errorf("%v does not implement proto.Message, but *%v does; register and send pointers", t, t)
	}
	return fmt.Errorf("%v does not implement proto.Message", t)
}
