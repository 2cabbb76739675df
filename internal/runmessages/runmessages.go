// Package runmessages has the messages about runs that clients and servers exchange. The types of messages
// contain the type of the run's items, so that each kind of run has messages of its own.
package runmessages

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A Message has a name in the protocol, as router.Message has.
type Message interface{ MessageType() string }

// An Attach asks for the items of a run: a stream of Parts, which ends with an Ended.
type Attach[Item Message] struct {
	Topic string `json:"topic"`
	Run   string `json:"run,omitzero" description:"the latest one of the topic without it"`
	From  uint64 `json:"from,omitzero" contract:"safe" description:"the number of the first item"`
}

// MessageType returns the type of the items with the suffix ".attach".
func (Attach[Item]) MessageType() string {
	var item Item
	return item.MessageType() + ".attach"
}

// A Part is an item, or several items that are merged into one. The first part of a stream names the run,
// and has no item.
type Part[Item any] struct {
	Run    string `json:"run,omitzero" description:"in the first part, which has no item"`
	Number uint64 `json:"n" contract:"safe" description:"the number of the item, or of the first one that is merged"`
	Count  int    `json:"count,omitzero" description:"how many items are merged; 1 without it"`
	Item   *Item  `json:"item,omitzero"`
}

// Next returns the number of the item after the part.
func (p *Part[Item]) Next() uint64 {
	if p.Item == nil {
		return p.Number
	}
	return p.Number + uint64(max(p.Count, 1)) //nolint:gosec // positive
}

// A Stop asks for the end of a run, and is answered with an Ended.
type Stop[Item Message] struct {
	Topic string `json:"topic"`
	Run   string `json:"run"`
}

// MessageType returns the type of the items with the suffix ".stop".
func (Stop[Item]) MessageType() string {
	var item Item
	return item.MessageType() + ".stop"
}

// An Ended says how a run has ended.
type Ended struct {
	Run   string   `json:"run"`
	State string   `json:"state"`
	Items uint64   `json:"items" contract:"safe" description:"how many the run has"`
	By    string   `json:"by,omitzero" description:"who has stopped it"`
	Error *Failure `json:"error,omitzero" description:"why it is not complete"`
}

// MessageType returns "run.ended".
func (Ended) MessageType() string { return "run.ended" }

// Err returns why the run is not complete, or nil.
func (e *Ended) Err() error {
	if e.Error == nil {
		return nil
	}
	f := e.Error
	err := &errors.Error{Code: f.Code, Message: f.Message}
	if f.Details != nil {
		err.Details = f.Details
	}
	switch {
	case f.RetryAfterMs != nil:
		err.RetryAfter = time.Duration(*f.RetryAfterMs) * time.Millisecond
	case !f.Retryable && err.Retryable(): // other errors with the code are
		err.RetryAfter = errors.Never
	}
	return err
}

// A Failure says why a run is not complete. It is an error of the protocol in types that every format of
// payloads can encode.
type Failure struct {
	Code         errors.Code    `json:"code"`
	Message      string         `json:"message,omitzero"`
	Details      map[string]any `json:"details,omitzero"`
	Retryable    bool           `json:"retryable" description:"whether another run may succeed"`
	RetryAfterMs *int64         `json:"retryAfterMs,omitzero" contract:"safe" description:"milliseconds to wait before that"`
}

// FailureOf returns an error of the protocol as a Failure, or nil if it is nil.
func FailureOf(p *protocol.ErrorPayload) *Failure {
	if p == nil {
		return nil
	}
	f := &Failure{Code: p.Code, Message: p.Message, Details: detailsOf(p.Details), Retryable: p.Retryable}
	if ms, err := strconv.ParseInt(string(p.RetryAfterMs), 10, 64); err == nil && ms > 0 {
		f.RetryAfterMs = &ms
	}
	return f
}

// detailsOf returns details as they are after decoding.
func detailsOf(details any) (object map[string]any) {
	if object, ok := details.(map[string]any); ok || details == nil {
		return object
	}
	if text, err := jsonv2.Marshal(details); err == nil {
		_ = jsonv2.Unmarshal(text, &object) // what is no object has no details
	}
	return object
}

// A Changed is published to the topic of a run when it has begun, and when it has ended.
type Changed struct {
	Run       string    `json:"run"`
	State     string    `json:"state"`
	StartedAt time.Time `json:"startedAt"`
}

// MessageType returns "run.changed".
func (Changed) MessageType() string { return "run.changed" }
