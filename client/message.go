//go:build !js

package client

import (
	crand "crypto/rand"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/tracing"
)

// payloadBytes is the size of most payloads.
const payloadBytes = 128

// encodePayload returns the JSON of a message, or nil if it has no members.
func encodePayload(m Message) ([]byte, error) {
	payload, err := jsonplan.Append(make([]byte, 0, payloadBytes), m)
	if err != nil {
		return nil, encodingError(m, err)
	}
	if string(payload) == "{}" {
		return nil, nil
	}
	return payload, nil
}

func encodingError(m Message, cause error) error {
	return &errors.Error{Code: errors.InvalidArgument, Message: "the message " + m.MessageType() + " cannot be encoded", Err: cause}
}

// encodeProtocol returns the JSON of a message of the protocol, which contains only strings, numbers and
// the like.
func encodeProtocol(m Message) []byte {
	payload, _ := encodePayload(m)
	return payload
}

// An envelope is a received message.
type envelope struct {
	Type    string       `json:"type"`
	Meta    meta         `json:"meta"`
	Payload jsonv2.Value `json:"payload"`

	codec Codec // of the payload; nil: JSON
}

type meta struct {
	Timestamp     int64  `json:"timestamp"`
	CorrelationID string `json:"correlationId"`
	TimeoutMs     int64  `json:"timeoutMs"`
	Topic         string `json:"topic"`
	Offset        uint64 `json:"offset"`
	TraceParent   string `json:"traceparent"`
	TraceState    string `json:"tracestate"`
}

func (e *envelope) content() payload { return payload{e.Payload, e.codec} }

func (e *envelope) decode(v any) error { return e.content().decode(v) }

func decodeJSON(text []byte, v any) error { return jsonplan.Unmarshal(text, v) }

// error returns the error that an ERROR, an RPC_ERROR or the reason of a close frame contains.
func (e *envelope) error() error {
	var p protocol.ErrorPayload
	if err := e.decode(&p); err != nil || p.Code == "" {
		return &errors.Error{Code: errors.Internal, Message: "the server has sent an error that cannot be decoded", Err: err}
	}
	return errorOf(&p)
}

// errorOf returns the error of a payload.
func errorOf(p *protocol.ErrorPayload) error {
	result := &errors.Error{Code: p.Code, Message: p.Message}
	if details, ok := p.Details.(map[string]any); ok {
		result.Details = details
	}
	switch ms, err := strconv.ParseInt(string(p.RetryAfterMs), 10, 64); {
	case string(p.RetryAfterMs) == "null":
		result.RetryAfter = errors.Never
	case err == nil:
		result.RetryAfter = demanded(ms, time.Millisecond)
	}
	return result
}

// detail returns a member of the details of a received error, or nil.
func detail(e *errors.Error, name string) any {
	details, _ := e.Details.(map[string]any)
	return details[name]
}

// longestDemand is so short that what clients add to it does not overflow.
const longestDemand = errors.Never / 2

// demanded returns a delay that the server demands: not a negative one, after which the client would not wait at all.
func demanded(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n, 0), int64(longestDemand/unit))) * unit
}

// head is what precedes the payload of a message to the server.
type head struct {
	typ, id   string
	timeoutMs int64
	ack       bool
	credit    int64 // -1: none
	trace     *tracing.TraceContext
}

// encode returns an envelope. type and meta come first, so that the server can answer with the ID
// even if the message is too large.
func (h *head) encode(payload []byte) []byte {
	b := h.appendTo(make([]byte, 0, 128+len(payload)))
	if payload != nil {
		b = append(append(b, `,"payload":`...), payload...)
	}
	return append(b, '}')
}

// appendTo appends an envelope up to the end of meta.
func (h *head) appendTo(b []byte) []byte {
	b = wire.AppendHead(b, &wire.OutgoingHead{Type: h.typ, CorrelationID: h.id, TimeoutMs: h.timeoutMs, At: time.Now(), Trace: h.trace})
	b = b[:len(b)-len(`}`)]
	if h.ack {
		b = append(b, `,"ack":true`...)
	}
	if h.credit >= 0 {
		b = strconv.AppendInt(append(b, `,"credit":`...), h.credit, 10)
	}
	return append(b, '}')
}

// An idSource makes correlation IDs: a random prefix, so that those of two clients differ, and a
// number.
type idSource struct {
	prefix string
	last   uint64
}

func (s *idSource) init() { s.prefix = crand.Text()[:10] + "-" }

func (s *idSource) next() string {
	s.last++
	return s.prefix + strconv.FormatUint(s.last, 36)
}
