// Package cbor is the payload format CBOR (RFC 8949) for router.Options.Codecs. It encodes the same
// message types as JSON, without further methods or generated code, and is more compact, above all
// for numbers and bytes. A client chooses it with the subprotocol penstock.v1.cbor.
//
// A struct is a map from field names to values. The name of a field is that of its tag "cbor", or
// else that of its tag "json", or else its Go name. Names are case-sensitive. As in JSON, nil slices
// and maps are empty, a [time.Time] is a string (RFC 3339, with tag 0), and a type with a method
// MarshalText is a text string. In contrast to JSON, a []byte is a byte string, and the methods
// MarshalJSON and UnmarshalJSON are not called; a type may have MarshalCBOR and UnmarshalCBOR
// instead. Strings must be valid UTF-8.
//
// The encoding is deterministic (RFC 8949, section 4.2.1): equal messages have equal encodings.
package cbor

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Subprotocol is the subprotocol by which clients choose CBOR.
const Subprotocol = "penstock.v1.cbor"

// Bounds of a payload that is decoded.
const (
	maxDepth    = 64 // nested arrays, maps and tags
	maxElements = 1 << 17
)

// Options configure a [Codec]. The zero value is a working configuration.
type Options struct {
	// RejectUnknownFields rejects payloads with fields that the message type does not have.
	RejectUnknownFields bool
}

// A Codec is the [router.Codec] of CBOR. Create one with [New]. It is safe for concurrent use.
//
// A payload is rejected with INVALID_ARGUMENT if a map contains the same key twice, if it is nested
// deeper than 64 levels, if it has more elements than router.Limits.Elements or an array or a map has
// more than 131,072, if a text string is not UTF-8, or if bytes follow it. The error names the field of the message whose value has the wrong
// type. A value of the type any is decoded as map[string]any, []any, string, []byte, bool, nil,
// uint64, int64, float64, [time.Time] or [big.Int].
type Codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

var _ router.Codec = (*Codec)(nil)

// New returns a codec. If opts is nil, the defaults are used.
func New(opts *Options) *Codec {
	encoding := cbor.CoreDetEncOptions()
	encoding.Time = cbor.TimeRFC3339Nano
	encoding.TimeTag = cbor.EncTagRequired
	encoding.NilContainers = cbor.NilContainerAsEmpty
	encoding.TextMarshaler = cbor.TextMarshalerTextString
	encoding.BinaryMarshaler = cbor.BinaryMarshalerNone
	decoding := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:   maxDepth,
		MaxArrayElements:  maxElements,
		MaxMapPairs:       maxElements,
		DefaultMapType:    reflect.TypeFor[map[string]any](),
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		BinaryUnmarshaler: cbor.BinaryUnmarshalerNone,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}
	if opts != nil && opts.RejectUnknownFields {
		decoding.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	}
	c := &Codec{}
	var err error
	if c.enc, err = encoding.EncMode(); err == nil {
		c.dec, err = decoding.DecMode()
	}
	if err != nil {
		panic(fmt.Sprintf("cbor: %v", err)) // the options are constants
	}
	return c
}

// Subprotocol returns [Subprotocol].
func (*Codec) Subprotocol() string { return Subprotocol }

// Marshal encodes v.
func (c *Codec) Marshal(v any) ([]byte, error) { return c.enc.Marshal(v) }

// Unmarshal decodes payload into what v points to. It returns an error with the code
// INVALID_ARGUMENT.
func (c *Codec) Unmarshal(payload []byte, v any) error {
	if len(payload) == 0 {
		return errors.InvalidField("payload", "is missing")
	}
	if err := c.dec.Unmarshal(payload, v); err != nil {
		return invalid(err)
	}
	return nil
}

// Check returns an error if values of a type can never be encoded.
func (c *Codec) Check(t reflect.Type) error {
	_, err := c.enc.Marshal(reflect.Zero(t).Interface())
	if unsupported, ok := errors.AsType[*cbor.UnsupportedTypeError](err); ok {
		return fmt.Errorf("CBOR cannot represent %v", unsupported.Type)
	}
	return nil // methods of the type may reject its zero value
}
