// Package runmessages has the messages about runs that clients and servers exchange. The types of messages
// contain the type of the run's items, so that each kind of run has messages of its own.
package runmessages

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A Message has a name in the protocol, as router.Message has.
type Message interface{ MessageType() string }

// An Attach asks for the items of a run: a stream of Parts, which ends with an Ended.
type Attach[Item Message] struct {
	Topic string `json:"topic"`
	Run   string `json:"run,omitzero"`  // the latest one if ""
	From  uint64 `json:"from,omitzero"` // the number of the first item
}

// MessageType returns the type of the items with the suffix ".attach".
func (Attach[Item]) MessageType() string {
	var item Item
	return item.MessageType() + ".attach"
}

// A Part is an item, or several items that are merged into one. The first part of a stream names the run,
// and has no item.
type Part[Item any] struct {
	Run    string `json:"run,omitzero"`
	Number uint64 `json:"n"`               // of the first item
	Count  int    `json:"count,omitzero"` // of the items that are merged; 1 if 0
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
	Run   string                 `json:"run"`
	State string                 `json:"state"`
	Items uint64                 `json:"items"` // of the run
	By    string                 `json:"by,omitzero"`
	Error *protocol.ErrorPayload `json:"error,omitzero"`
}

// MessageType returns "run.ended".
func (Ended) MessageType() string { return "run.ended" }

// Err returns why the run is not complete, or nil.
func (e *Ended) Err() error {
	if e.Error == nil {
		return nil
	}
	details, _ := e.Error.Details.(map[string]any)
	err := &errors.Error{Code: e.Error.Code, Message: e.Error.Message, Details: details}
	if text := string(e.Error.RetryAfterMs); text == "null" {
		err.RetryAfter = errors.Never
	} else if ms, failure := strconv.ParseInt(text, 10, 64); failure == nil && ms > 0 {
		err.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	return err
}

// A Changed is published to the topic of a run when it has begun, and when it has ended.
type Changed struct {
	Run       string    `json:"run"`
	State     string    `json:"state"`
	StartedAt time.Time `json:"startedAt"`
}

// MessageType returns "run.changed".
func (Changed) MessageType() string { return "run.changed" }
