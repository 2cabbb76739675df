package router

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/httptoken"
	"github.com/penstock-go/penstock/internal/wire"
)

// A Codec is a payload format other than JSON, for the connections that negotiate its subprotocol:
// see Options.Codecs and the protocol, section 11. Packages codec/cbor and codec/protobuf contain
// one each. The methods are called concurrently.
//
// A Codec may also have a method Check(reflect.Type) error, which is called for each type that is
// registered and that has fields. If it returns an error, registration panics.
//
// A decoded payload may take much more memory than the payload. A Codec may have a method
// Elements(payload []byte) int, which returns the number of array elements and map members in a payload:
// one with more than Limits.Elements is then rejected and not decoded. It is called only for payloads of
// more bytes than that. A Codec without it must itself bound what Unmarshal allocates; that of package
// codec/protobuf has none, since its messages depend on their types.
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

// A format is the payload format of a connection: formatJSON, or 1 plus the index of a codec in
// Options.Codecs.
type format uint8

const formatJSON format = 0

// maxCodecs bounds Options.Codecs.
const maxCodecs = 16

// A formatSet is a set of formats, as bits.
type formatSet uint32

func (s formatSet) has(f format) bool { return s&(1<<f) != 0 }

func (s *formatSet) add(f format) { *s |= 1 << f }

// A namedCodec is a Codec whose Subprotocol has been called.
type namedCodec struct {
	Codec

	name string
}

// Subprotocol returns what the codec returned to New.
func (c namedCodec) Subprotocol() string { return c.name }

// nameCodecs returns the codecs as namedCodecs. It panics if they are invalid.
func nameCodecs(codecs []Codec, subprotocols []string) []Codec {
	if len(codecs) > maxCodecs {
		panic(fmt.Sprintf("router: Codecs has %d elements; it must have at most %d", len(codecs), maxCodecs))
	}
	var named []Codec
	names := slices.Clone(subprotocols)
	for i, codec := range codecs {
		if codec == nil {
			panic(fmt.Sprintf("router: Codecs[%d] is nil", i))
		}
		name := codec.Subprotocol()
		switch {
		case !httptoken.IsValid(name) || strings.HasPrefix(name, handshake.BearerPrefix):
			panic(fmt.Sprintf("router: the subprotocol of Codecs[%d] is %q; it must be an HTTP token that does not begin with %q", i, name, handshake.BearerPrefix))
		case slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) }):
			panic(fmt.Sprintf("router: the subprotocol of Codecs[%d] is %q, which Codecs or Subprotocols contains already", i, name))
		}
		names, named = append(names, name), append(named, namedCodec{codec, name})
	}
	return named
}

// mustSupport panics if a codec of the router does not support a message type.
func (r *Router) mustSupport(typ reflect.Type, position string) {
	if typ.Kind() == reflect.Struct && typ.NumField() == 0 {
		return // such messages have no payload
	}
	for _, codec := range r.opts.Codecs {
		checker, ok := codec.(namedCodec).Codec.(interface{ Check(reflect.Type) error })
		if !ok {
			continue
		}
		if err := checker.Check(typ); err != nil {
			panic(fmt.Sprintf("router: %s: %v cannot be encoded for the subprotocol %s: %v", position, typ, codec.Subprotocol(), err))
		}
	}
}

// selectFormat returns the format of a connection and its subprotocol: those of the first codec whose
// subprotocol the client offers, or else JSON.
func (r *Router) selectFormat(req *http.Request) (format, string) {
	offered := handshake.OfferedSubprotocols(req)
	for i, codec := range r.opts.Codecs {
		if name := codec.Subprotocol(); slices.Contains(offered, name) {
			return format(i + 1), name
		}
	}
	return formatJSON, handshake.SelectSubprotocol(r.opts.Subprotocols, offered)
}

// codec returns the codec of the connection, or nil for JSON.
func (c *Conn) codec() Codec { return c.router.codecOf(c.format) }

// codecOf returns the codec of a format, or nil for JSON.
func (r *Router) codecOf(f format) Codec {
	if f == formatJSON {
		return nil
	}
	return r.opts.Codecs[f-1]
}

// binary reports whether the connection has a codec, so that the server sends binary messages.
func (c *Conn) binary() bool { return c.format != formatJSON }

// marshalWith encodes v, and recovers a panic of the codec.
func marshalWith(codec Codec, v any) (payload []byte, err error) {
	defer recoverAsError(&err)
	return codec.Marshal(v)
}

// checkElements returns an error if a payload has too many elements. codec is nil for JSON. It must be
// called by guard.
func (r *Router) checkElements(codec Codec, payload []byte) error {
	limit, n := r.opts.Limits.Elements, 0
	if len(payload) <= limit { // an element takes a byte or more
		return nil
	}
	if codec == nil {
		n = wire.Elements(payload)
	} else if counter, ok := codec.(namedCodec).Codec.(interface{ Elements(payload []byte) int }); ok {
		n = counter.Elements(payload)
	}
	if n > limit {
		return errors.InvalidField("payload", fmt.Sprintf("must have at most %d elements and members, not %d", limit, n))
	}
	return nil
}

// decodePayload decodes a payload into the value that v points to. codec is nil for JSON, the only
// format for which rejectUnknown counts. It must be called by guard.
func decodePayload(codec Codec, payload []byte, v any, rejectUnknown bool) error {
	if codec == nil {
		return unmarshal(payload, v, rejectUnknown)
	}
	err := codec.Unmarshal(payload, v)
	if err == nil || failure.IsNilPointer(err) {
		return err
	}
	if _, ok := failure.AsType[*errors.Error](err); ok {
		return err
	}
	e := errors.InvalidField("payload", "cannot be decoded")
	e.Err = failure.QuoteDecoder(err)
	return e
}
