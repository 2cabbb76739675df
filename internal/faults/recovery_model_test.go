//go:build unix

package faults_test

import (
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/penstock-go/penstock/broker"
)

// This file is the data of the recovery tests: what publishers have tried, what clients have
// received, and what the history contains at the end. Times are in nanoseconds since 1970, by the
// clock that all processes share.

// A story is a publication. Each publisher numbers its stories of a topic from 1.
type story struct {
	Topic     string `json:"topic"`
	Publisher string `json:"publisher"`
	Number    int    `json:"number"`
	Begun     int64  `json:"begun"` // when the publisher tried for the first time
	Text      string `json:"text"`
	Sum       uint32 `json:"sum"`
}

func (story) MessageType() string { return "STORY" }

// checksum returns what Sum must be.
func (s *story) checksum() uint32 {
	return crc32.ChecksumIEEE(fmt.Append(nil, s.Topic, s.Publisher, s.Number, s.Begun, s.Text))
}

// A storyID identifies a story of a topic. Its text is the idempotency key.
type storyID struct {
	publisher string
	number    int
}

func (id storyID) String() string { return fmt.Sprint(id.publisher, "-", id.number) }

// An outcome is the result of an attempt to publish.
type outcome string

const (
	stored    outcome = "stored"
	notStored outcome = "not stored"
	unknown   outcome = "unknown" // even if the process was killed
)

// An attempt is one call of a publisher.
type attempt struct {
	begun    int64
	outcome  outcome
	position broker.Position // if stored
}

// A step is what one client receives about one topic. Its fields are those of the message.
type step struct {
	at        int64
	kind      stepKind
	since     broker.Position // which the client has presented; zero if none
	position  broker.Position // of the answer or the notice; a publication has only an offset
	recovered bool
	reset     bool
	lost      *offsets
	ended     *broker.Position
	story     storyID
	corrupt   bool // the story is incomplete, or of another topic
}

type stepKind byte

const (
	subscribed stepKind = iota
	delivered
	moved // $ws:position
)

// offsets are the first and the last one.
type offsets struct{ From, To uint64 }

// An entry is a story in the history.
type entry struct {
	position broker.Position
	story    storyID
}

// A topicRecord is everything that is known of a topic. The lock guards it during a run.
type topicRecord struct {
	mu       sync.Mutex
	name     string
	retained int                   // History.Messages
	attempts map[storyID][]attempt // in their order
	chains   map[string][]step     // by client, over all of its connections
	final    []entry               // the history at the end
	top      broker.Position       // at the end
	quiet    int64                 // when all faults and all publishers had ended
	trimmed  bool                  // a fault has removed a part of the history
}

func newTopicRecord(name string, retained int) *topicRecord {
	return &topicRecord{name: name, retained: retained, attempts: map[storyID][]attempt{}, chains: map[string][]step{}}
}

// begin records an attempt. Its outcome is unknown until end is called.
func (r *topicRecord) begin(id storyID, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[id] = append(r.attempts[id], attempt{begun: at, outcome: unknown})
}

// end records the outcome of the last attempt.
func (r *topicRecord) end(id storyID, o outcome, p broker.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tries := r.attempts[id]; len(tries) > 0 {
		tries[len(tries)-1].outcome, tries[len(tries)-1].position = o, p
	}
}

func (r *topicRecord) add(client string, s step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chains[client] = append(r.chains[client], s)
}
