package router

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/rules"
)

// A Codec is a payload format other than JSON, for the connections that negotiate its subprotocol:
// see Options.Codecs and the protocol, section 11. Packages codec/cbor and codec/protobuf contain
// one each. The methods are called concurrently.
//
// A Codec may also have a method Check(reflect.Type) error, which is called for each type that is
// registered and that has fields. If it returns an error, registration panics.
//
// A decoded payload may take much more memory than the payload. A Codec may have a method
// Elements(payload []byte, t reflect.Type) int, which returns the number of array elements and map members
// in a payload of a registered type: one with more than Limits.Elements is then refused and not decoded. It
// is called only for payloads of more bytes than that. A Codec without it must itself bound what Unmarshal
// allocates.
type Codec interface {
	// Subprotocol returns the name of the subprotocol: an HTTP token (RFC 9110, section 5.6.2) that
	// does not begin with "bearer.". It must always be the same.
	Subprotocol() string

	// Marshal encodes a [Message] or the argument of [Context.Progress]. Equal values should have
	// equal encodings. An error is reported as INTERNAL.
	Marshal(v any) ([]byte, error)

	// Unmarshal decodes a payload into the value that v points to. The payload must not be
	// modified, nor used after Unmarshal has returned. It is empty if the client sent none, which
	// is an error unless the format encodes values as nothing. The client receives an error without
	// a code as INVALID_ARGUMENT, but not its text; [errors.InvalidField] returns an error that
	// names the field.
	Unmarshal(payload []byte, v any) error
}

// newFormats returns the formats of a router. It panics if the codecs are invalid.
func newFormats(codecs []Codec, subprotocols []string) (fs envelope.Formats) {
	if len(codecs) > envelope.MaxCodecs {
		panic(fmt.Sprintf("router: Codecs has %d elements; it must have at most %d", len(codecs), envelope.MaxCodecs))
	}
	names := slices.Clone(subprotocols)
	for i, codec := range codecs {
		if codec == nil {
			panic(fmt.Sprintf("router: Codecs[%d] is nil", i))
		}
		name := codec.Subprotocol()
		switch {
		case !rules.IsToken(name) || strings.HasPrefix(name, handshake.BearerPrefix):
			panic(fmt.Sprintf("router: the subprotocol of Codecs[%d] is %q; it must be an HTTP token that does not begin with %q", i, name, handshake.BearerPrefix))
		case slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) }):
			panic(fmt.Sprintf("router: the subprotocol of Codecs[%d] is %q, which Codecs or Subprotocols contains already", i, name))
		}
		names = append(names, name)
		fs.Add(codec, name)
	}
	return fs
}

// mustSupport panics if a codec of the router does not support a message type.
func (r *Router) mustSupport(typ reflect.Type, position string) {
	if typ.Kind() == reflect.Struct && typ.NumField() == 0 {
		return // such messages have no payload
	}
	if subprotocol, err := r.formats.Check(typ); err != nil {
		panic(fmt.Sprintf("router: %s: %v cannot be encoded for the subprotocol %s: %v", position, typ, subprotocol, err))
	}
}

// selectFormat returns the format of a connection and its subprotocol: those of the first codec whose
// subprotocol the client offers, or else JSON. Over HTTP, messages are text, so it is always JSON.
func (r *Router) selectFormat(req *http.Request, transport Transport) (envelope.Format, string) {
	offered := handshake.OfferedSubprotocols(req)
	for f := envelope.JSON + 1; f < r.formats.End() && transport == TransportWebSocket; f++ {
		if name := r.formats.Subprotocol(f); slices.Contains(offered, name) {
			return f, name
		}
	}
	return envelope.JSON, handshake.SelectSubprotocol(r.opts.Subprotocols, offered)
}

// codec returns the codec of the connection, or nil for JSON.
func (c *Conn) codec() Codec { return c.router.formats.Codec(c.member.Format) }

// binary reports whether the connection has a codec, so that the server sends binary messages.
func (c *Conn) binary() bool { return c.member.Format != envelope.JSON }
