package aisdk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
)

// A Request is a send of a page.
type Request struct {
	Chat      string // its ID, which the page chooses
	Trigger   Trigger
	MessageID string  // of the message that the page replaces, or ""
	Message   Message // the user's last one

	// Data of the page.
	Headers  map[string]string
	Body     json.RawMessage // an object
	Metadata json.RawMessage // nil without one

	Identity router.Identity // of the connection
}

// A Trigger is why a page asks for an answer.
type Trigger string

// The triggers.
const (
	TriggerSubmit     Trigger = "submit-message"
	TriggerRegenerate Trigger = "regenerate-message"
)

// A Message is one of the user. The page has made it: check the URLs of files before the server
// loads them.
type Message struct {
	ID       string            `json:"id"`
	Role     string            `json:"role"` // "user"
	Parts    []json.RawMessage `json:"parts"`
	Metadata json.RawMessage   `json:"metadata,omitzero"`
}

// Text returns the texts of the message, joined.
func (m *Message) Text() string {
	var text strings.Builder
	for _, raw := range m.Parts {
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if jsonv2.Unmarshal(raw, &part) == nil && part.Type == "text" {
			text.WriteString(part.Text)
		}
	}
	return text.String()
}

// requestID returns the ID of the start of a run: equal for repeated sends of one message, and
// another one for a message that the user has edited.
func (r *Request) requestID() string {
	var parts any
	text, err := jsonv2.Marshal(r.Message.Parts)
	if err == nil {
		err = jsonv2.Unmarshal(text, &parts)
	}
	if err == nil {
		text, err = jsonv2.Marshal([]any{r.Message.ID, parts}, jsonv2.Deterministic(true))
	}
	if err != nil {
		panic(err) // the parts have been decoded
	}
	sum := sha256.Sum256(text)
	return string(r.Trigger) + "/" + hex.EncodeToString(sum[:16])
}

// The types of frames.
const (
	frameSend     = "send"
	frameResume   = "resume"
	frameAbort    = "abort"
	frameStart    = "start"
	frameChunk    = "chunk"
	frameEnd      = "end"
	frameError    = "error"
	frameNoActive = "no-active"
)

// maxIDBytes bounds what a page can make the server keep for a request.
const maxIDBytes = 256

// A frame is one of a page. Its members are decoded one by one, so that an invalid one can be
// answered.
type frame struct {
	Type      json.RawMessage `json:"type"`
	RequestID json.RawMessage `json:"requestId"`
	ID        json.RawMessage `json:"id"`
	Trigger   json.RawMessage `json:"trigger"`
	MessageID json.RawMessage `json:"messageId"`
	Messages  json.RawMessage `json:"messages"`
	Headers   json.RawMessage `json:"headers"`
	Body      json.RawMessage `json:"body"`
	Metadata  json.RawMessage `json:"metadata"`

	LastSequence json.RawMessage `json:"lastSequence"`
}

// parseFrame returns a frame with its type and the ID of its request. An error closes the
// connection, because it cannot be answered.
func parseFrame(text []byte) (f *frame, kind, requestID string, err error) {
	f = new(frame)
	if err := jsonv2.Unmarshal(text, f); err != nil {
		return nil, "", "", errors.Errorf(errors.InvalidArgument, "a frame must be a JSON object")
	}
	if jsonv2.Unmarshal(f.RequestID, &requestID) != nil || requestID == "" || len(requestID) > maxIDBytes {
		return nil, "", "", errors.Errorf(errors.InvalidArgument, "a frame needs a requestId of 1 to %d bytes", maxIDBytes)
	}
	if jsonv2.Unmarshal(f.Type, &kind) != nil {
		kind = "" // unknown
	}
	return f, kind, requestID, nil
}

// chat returns the chat of a send or a resume.
func (f *frame) chat() (chat string, err error) {
	if jsonv2.Unmarshal(f.ID, &chat) != nil || chat == "" || len(chat) > maxIDBytes {
		return "", invalid("id", "must be a string of 1 to %d bytes", maxIDBytes)
	}
	return chat, nil
}

// checkResume returns an error if a resume is invalid.
func (f *frame) checkResume() error {
	var last uint64
	if f.LastSequence != nil && jsonv2.Unmarshal(f.LastSequence, &last) != nil {
		return invalid("lastSequence", "must be an integer of at least 0")
	}
	return f.checkData(new(Request))
}

// request returns a send.
func (f *frame) request(chat string) (*Request, error) {
	r := &Request{Chat: chat, Metadata: f.Metadata}
	if jsonv2.Unmarshal(f.Trigger, &r.Trigger) != nil || r.Trigger != TriggerSubmit && r.Trigger != TriggerRegenerate {
		return nil, invalid("trigger", "must be %q or %q", TriggerSubmit, TriggerRegenerate)
	}
	if f.MessageID != nil && (isNull(f.MessageID) || jsonv2.Unmarshal(f.MessageID, &r.MessageID) != nil) {
		return nil, invalid("messageId", "must be a string")
	}
	if err := f.checkData(r); err != nil {
		return nil, err
	}
	var err error
	r.Message, err = f.lastMessage()
	return r, err
}

// checkData decodes headers and body.
func (f *frame) checkData(r *Request) error {
	if f.Headers != nil && (isNull(f.Headers) || jsonv2.Unmarshal(f.Headers, &r.Headers) != nil) {
		return invalid("headers", "must be an object of strings")
	}
	if r.Body = f.Body; r.Body == nil {
		r.Body = json.RawMessage("{}")
	}
	if r.Body[0] != '{' {
		return invalid("body", "must be an object")
	}
	return nil
}

// lastMessage returns the user's last message.
func (f *frame) lastMessage() (m Message, err error) {
	var messages []json.RawMessage
	if f.Messages == nil || jsonv2.Unmarshal(f.Messages, &messages) != nil {
		return m, invalid("messages", "must be an array")
	}
	for _, text := range slices.Backward(messages) {
		var head struct {
			Role string `json:"role"`
		}
		if jsonv2.Unmarshal(text, &head) != nil {
			return m, invalid("messages", "must be objects with a role")
		}
		if head.Role != "user" {
			continue
		}
		if err := jsonv2.Unmarshal(text, &m); err != nil || m.ID == "" || len(m.Parts) == 0 {
			return m, invalid("messages", "must have an id and parts")
		}
		return m, nil
	}
	return m, invalid("messages", "must have one with the role user")
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

// invalid returns the error for a field of a frame.
func invalid(field, format string, args ...any) error {
	return errors.InvalidField(field, fmt.Sprintf(format, args...))
}
