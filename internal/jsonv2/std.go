//go:build go1.27 && goexperiment.jsonv2

package jsonv2

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io"
)

// ErrDuplicateName reports that an object has the same member twice.
var ErrDuplicateName = jsontext.ErrDuplicateName

// ErrUnknownName reports a member for which the Go type has no field.
var ErrUnknownName = json.ErrUnknownName

// The kinds of JSON values.
const (
	KindNull       = jsontext.KindNull
	KindFalse      = jsontext.KindFalse
	KindTrue       = jsontext.KindTrue
	KindString     = jsontext.KindString
	KindNumber     = jsontext.KindNumber
	KindBeginArray = jsontext.KindBeginArray
)

type (
	// Value is one encoded JSON value.
	Value = jsontext.Value

	// Pointer is a JSON Pointer (RFC 6901).
	Pointer = jsontext.Pointer

	// Encoder is the argument of [MarshalerTo].
	Encoder = jsontext.Encoder

	// Options configures encoding and decoding.
	Options = json.Options

	// SemanticError reports JSON that does not fit the Go type, or the reverse.
	SemanticError = json.SemanticError

	// SyntacticError reports text that is not JSON.
	SyntacticError = jsontext.SyntacticError

	// Marshaler is implemented by types that encode themselves.
	Marshaler = json.Marshaler

	// MarshalerTo is implemented by types that encode themselves to an [Encoder].
	MarshalerTo = json.MarshalerTo

	// Unmarshaler is implemented by types that decode themselves.
	Unmarshaler = json.Unmarshaler

	// UnmarshalerFrom is implemented by types that decode themselves from a decoder.
	UnmarshalerFrom = json.UnmarshalerFrom
)

// Marshal returns the encoding of v.
func Marshal(v any, opts ...Options) ([]byte, error) { return json.Marshal(v, opts...) }

// MarshalWrite writes the encoding of v to w, without a newline.
func MarshalWrite(w io.Writer, v any, opts ...Options) error { return json.MarshalWrite(w, v, opts...) }

// Unmarshal decodes text into what v points to.
func Unmarshal(text []byte, v any, opts ...Options) error { return json.Unmarshal(text, v, opts...) }

// AppendUnquote appends the text of a JSON string to dst.
func AppendUnquote(dst []byte, quoted Value) ([]byte, error) {
	return jsontext.AppendUnquote(dst, quoted)
}

// JoinOptions returns all options as one; the last one of a kind wins.
func JoinOptions(opts ...Options) Options { return json.JoinOptions(opts...) }

// AllowInvalidUTF8 replaces invalid UTF-8 with U+FFFD instead of returning an error.
func AllowInvalidUTF8(v bool) Options { return jsontext.AllowInvalidUTF8(v) }

// RejectUnknownMembers returns [ErrUnknownName] for members for which the Go type has no field.
func RejectUnknownMembers(v bool) Options { return json.RejectUnknownMembers(v) }

// Deterministic encodes equal values to equal text: maps are sorted by key.
func Deterministic(v bool) Options { return json.Deterministic(v) }

// WithIndent puts each member and element on a line of its own, indented by indent.
func WithIndent(indent string) Options { return jsontext.WithIndent(indent) }
