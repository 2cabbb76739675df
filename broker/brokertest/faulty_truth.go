package brokertest

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// Stored returns every publication that was ever stored in a topic, in all epochs, in the order in
// which they were stored. The packets must not be changed.
func (s *FaultyStore) Stored(topic string) []broker.Publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.data.truth[topic]; t != nil {
		return slices.Clone(t.stored)
	}
	return nil
}

// Dropped returns those of Stored that FailOver and RestartEmpty have lost.
func (s *FaultyStore) Dropped(topic string) (dropped []broker.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.data.truth[topic]
	if t == nil {
		return nil
	}
	for _, i := range slices.Sorted(maps.Keys(t.dropped)) {
		dropped = append(dropped, t.stored[i])
	}
	return dropped
}

// Topics returns the topics in which something was ever stored.
func (s *FaultyStore) Topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.data.truth))
}

// Occurred returns how often something happened, by its name, so that a test knows what its seeds
// have covered: "lost answer", "failed over", and without a fault "read before answer" and
// "delivered before answer".
func (s *FaultyStore) Occurred() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.occurred)
}

// A StoreUsage is what a [FaultyStore] contains and who uses it, to find leaks.
type StoreUsage struct {
	Nodes        int   // that are neither closed nor crashed
	Following    int   // topics that they follow, each counted for each node
	WaitingCalls int   // including those of crashed nodes
	Bytes        int64 // of packets and state keys that are retained and not expired
	Values       int   // that have not expired
	ValueBytes   int64 // of their data
}

// Usage returns the present usage.
func (s *FaultyStore) Usage() StoreUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := StoreUsage{Nodes: len(s.nodes), WaitingCalls: s.waiting}
	for _, n := range s.nodes {
		for _, sub := range n.subs {
			if sub.wanted {
				u.Following++
			}
		}
	}
	for _, t := range s.data.topics {
		u.Bytes += t.bytes()
	}
	for _, v := range s.data.values {
		if time.Now().Before(v.expires) {
			u.Values++
			u.ValueBytes += int64(len(v.Data))
		}
	}
	return u
}

// bytes returns the length of what is in the history or the state, or in both.
func (t *faultyTopic) bytes() (bytes int64) {
	for i := t.unexpired(t.age); i < len(t.log); i++ {
		r := &t.log[i]
		if latest, ok := t.state[r.StateKey]; i >= t.removed || ok && latest == i {
			bytes += int64(len(r.Packet) + len(r.StateKey))
		}
	}
	return bytes
}
