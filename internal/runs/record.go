package runs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A Record is what all nodes know of the latest run of a topic: a value of the store, which the owner of
// the run changes, or a node that ends a run without an owner.
type Record struct {
	ID        string    `json:"id"`
	Topic     string    `json:"topic"`
	RequestID string    `json:"request,omitzero"`
	Fence     uint64    `json:"fence"` // of the owner: what it appends to the log has this fence
	State     State     `json:"state"`
	Node      string    `json:"node,omitzero"` // of the owner
	StartedAt time.Time `json:"started,omitzero"`

	// Of a run that has ended.
	End *End `json:"end,omitzero"`

	// Reservation is what the run has taken from its budget; nil without one. Settled means that it has
	// been replaced by what was used.
	Reservation json.RawMessage `json:"reservation,omitzero"`
	Settled     bool            `json:"settled,omitzero"`

	// Earlier has the runs before this one, newest first, as far as they may be asked for.
	Earlier []Earlier `json:"earlier,omitzero"`
}

// An End is how a run has ended. It is the last entry of the log of the run, and part of its record.
type End struct {
	State State                  `json:"state"`
	Items uint64                 `json:"items"`          // of the run
	Error *protocol.ErrorPayload `json:"error,omitzero"` // nil if it is completed
	By    string                 `json:"by,omitzero"`    // who has stopped it
	At    time.Time              `json:"at"`
}

// An Earlier is a run before the latest one.
type Earlier struct {
	ID        string    `json:"id"`
	RequestID string    `json:"request,omitzero"`
	StartedAt time.Time `json:"started,omitzero"`
	End       End       `json:"end"`
}

// maxEarlier bounds Record.Earlier.
const maxEarlier = 16

// earlier returns the runs before the next one.
func (r *Record) earlier(now time.Time, retain time.Duration) []Earlier {
	if r.ID == "" || r.End == nil {
		return nil
	}
	return retained(append([]Earlier{{r.ID, r.RequestID, r.StartedAt, *r.End}}, r.Earlier...), now, retain)
}

// retained removes the runs that ended too long ago.
func retained(earlier []Earlier, now time.Time, retain time.Duration) []Earlier {
	kept := earlier[:0]
	for _, e := range earlier {
		if len(kept) < maxEarlier && now.Sub(e.End.At) < retain {
			kept = append(kept, e)
		}
	}
	return kept
}

// record returns an earlier run as a record.
func (e *Earlier) record(topic string) *Record {
	return &Record{ID: e.ID, Topic: topic, RequestID: e.RequestID, StartedAt: e.StartedAt, State: e.End.State, End: &e.End}
}

// find returns the run with an ID, or the one of a request, or nil. With neither, it is the latest run.
func (r *Record) find(id, requestID string) *Record {
	match := func(otherID, otherRequest string) bool {
		return id == otherID || id == "" && (requestID == "" || requestID == otherRequest)
	}
	if r.ID == "" {
		return nil
	}
	if match(r.ID, r.RequestID) {
		return r
	}
	for i := range r.Earlier {
		if match(r.Earlier[i].ID, r.Earlier[i].RequestID) {
			return r.Earlier[i].record(r.Topic)
		}
	}
	return nil
}

// A versionedRecord is a record as the store has it. Without one, the version is 0.
type versionedRecord struct {
	Record

	version uint64
}

// A lease says that the owner of a run lives. It is a value of its own, which expires.
type lease struct {
	ID    string `json:"id"` // of the run
	Fence uint64 `json:"fence"`
}

// decode decodes a value of the store.
func decode(data []byte, into any) error {
	if err := jsonv2.Unmarshal(data, into); err != nil {
		return fmt.Errorf("runs: a value of the store cannot be decoded: %w", err)
	}
	return nil
}

// encode encodes what is always valid: the types of this package, and JSON.
func encode(v any) []byte {
	data, err := jsonv2.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
