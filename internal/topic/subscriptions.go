package topic

import (
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/topicname"
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
