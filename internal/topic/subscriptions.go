package topic

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// The subscriptions are the topics of a connection. A nil *subscriptions has none. The lock of the
// connection guards it.
type subscriptions struct {
	topics []*Topic      // by name
	counts *patternCount // a linked list, because few patterns have a MaxPerConn
}

// A patternCount is the number of subscriptions to topics of a pattern with MaxPerConn.
type patternCount struct {
	pattern *Pattern
	n       int
	next    *patternCount
}

// all returns the topics, by name. The slice changes with the subscriptions.
func (s *subscriptions) all() []*Topic {
	if s == nil {
		return nil
	}
	return s.topics
}

// named returns the topics, by name, without the log of the user.
func (s *subscriptions) named() []*Topic {
	if s.userLog() != nil { // no name of a topic precedes it
		return s.topics[1:]
	}
	return s.all()
}

// userLog returns the log of the connection's user, or nil if it has none.
func (s *subscriptions) userLog() *Topic {
	if topics := s.all(); len(topics) > 0 && topicname.IsUserLog(topics[0].Name) {
		return topics[0]
	}
	return nil
}

// find returns a topic by its name, or nil if the connection does not subscribe to it.
func (s *subscriptions) find(name string) *Topic {
	if s == nil {
		return nil
	}
	if i, ok := s.search(name); ok {
		return s.topics[i]
	}
	return nil
}

func (s *subscriptions) search(name string) (int, bool) {
	return slices.BinarySearchFunc(s.topics, name, func(t *Topic, name string) int { return strings.Compare(t.Name, name) })
}

// add adds a topic, which must not be among them.
func (s *subscriptions) add(t *Topic) {
	i, _ := s.search(t.Name)
	s.topics = slices.Insert(s.topics, i, t)
	s.count(t.Pattern, 1)
}

// remove removes a topic, which must be among them.
func (s *subscriptions) remove(t *Topic) {
	i, _ := s.search(t.Name)
	s.topics = shrink(slices.Delete(s.topics, i, i+1))
	s.count(t.Pattern, -1)
}

// count adds to the number of subscriptions to topics of a pattern.
func (s *subscriptions) count(p *Pattern, n int) {
	if p.MaxPerConn == 0 {
		return
	}
	counter := s.counter(p)
	if counter == nil {
		counter = &patternCount{pattern: p, next: s.counts}
		s.counts = counter
	}
	counter.n += n
}

// counter returns the count of a pattern, or nil if there is none.
func (s *subscriptions) counter(p *Pattern) *patternCount {
	for counter := s.counts; counter != nil; counter = counter.next {
		if counter.pattern == p {
			return counter
		}
	}
	return nil
}

// countOf returns the number of subscriptions to topics of a pattern with MaxPerConn.
func (s *subscriptions) countOf(p *Pattern) int {
	if s == nil {
		return 0
	}
	if counter := s.counter(p); counter != nil {
		return counter.n
	}
	return 0
}

// A Subscriber is what topics need of a connection, and the first part of it: fan-out reads nothing
// else.
type Subscriber struct {
	WS      *wsconn.Conn    // read-only, like format and number, when the connection is open
	Format  envelope.Format // of payloads
	expects atomic.Uint32   // which frames of the protocol the client knows: see HasGreeted

	// When the router accepted the connection, in nanoseconds since Router.created, or later if it
	// accepted others at the same time: so numbers are in the order of the connections.
	Number uint64

	subscriptions *subscriptions // nil until the first; guarded by the lock of the connection
}

// The values of Subscriber.expects.
const (
	expectsAnswers uint32 = iota
	expectsPositions
	expectsAll
)

// HasGreeted reports whether the client has sent $ws:hello, or $ws:resume: it knows frames that
// other clients do not expect.
func (s *Subscriber) HasGreeted() bool { return s.expects.Load() == expectsAll }

// Greet notes that the client knows all frames.
func (s *Subscriber) Greet() { s.expects.Store(expectsAll) }

// expectsPositions reports whether the client knows positions: it has greeted, has asked for them,
// or has presented one. A handler may subscribe other clients to a topic with a History; they
// receive the publications alone.
func (s *Subscriber) expectsPositions() bool { return s.expects.Load() >= expectsPositions }

// ExpectPositions notes that the client knows positions.
func (s *Subscriber) ExpectPositions() { s.expects.CompareAndSwap(expectsAnswers, expectsPositions) }

// connNumber returns the number by which a connList sorts.
func (s *Subscriber) connNumber() uint64 { return s.Number }

// addTopicLocked adds a topic to the connection's.
func (s *Subscriber) addTopicLocked(t *Topic) {
	if s.subscriptions == nil {
		s.subscriptions = new(subscriptions)
	}
	s.subscriptions.add(t)
}

// TopicsLocked returns the topics to which the connection subscribes, by name. The slice changes
// with the subscriptions.
func (s *Subscriber) TopicsLocked() []*Topic { return s.subscriptions.all() }

// TopicLocked returns a topic by its name, or nil if the connection does not subscribe to it.
func (s *Subscriber) TopicLocked(name string) *Topic { return s.subscriptions.find(name) }

// UserLogLocked returns the log of the connection's user, or nil if it does not subscribe to it.
func (s *Subscriber) UserLogLocked() *Topic { return s.subscriptions.userLog() }

// TakeTopicsLocked removes and returns the topics to which the connection subscribes. The caller
// removes it from each of them.
func (s *Subscriber) TakeTopicsLocked() []*Topic {
	all := s.subscriptions.all()
	s.subscriptions = nil
	return all
}

// queue queues a frame, whose reference it takes, and wakes the writer. It reports false if the
// connection is closed or a policy has dropped the frame.
func (s *Subscriber) queue(frame *wsconn.Frame) bool {
	err := s.WS.Queue(frame)
	s.WS.Wake()
	return err == nil
}
