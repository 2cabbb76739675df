package session

import (
	"maps"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file changes what handlers have granted a session: the topics in its record.

// Admits returns about how long the record would be with another grant, and whether that is permitted.
func (s *Session) Admits(topic string, g Grant) (bytes int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitsLocked(topic, g)
}

func (s *Session) admitsLocked(topic string, g Grant) (bytes int, ok bool) {
	before, has := s.record.Topics[topic]
	bytes = grantBytes(topic, before.add(g))
	if has && bytes <= grantBytes(topic, before) {
		return bytes, true
	}
	for name, grant := range s.record.Topics {
		if name != topic {
			bytes += grantBytes(name, grant)
		}
	}
	return bytes, bytes <= s.node.config.MaxBytes
}

// grantBytes is about how long a grant is in the record.
func grantBytes(topic string, g Grant) int { return len(topic) + len(g.Info) + 100 }

// Grant adds a grant to the record.
func (s *Session) Grant(topic string, g Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grantLocked(topic, g)
}

func (s *Session) grantLocked(topic string, g Grant) {
	before, ok := s.record.Topics[topic]
	if g = before.add(g); !ok || g != before {
		s.record.Topics[topic] = g
		s.changedLocked()
	}
}

// SetHidden notes whether the client is not present in a topic of the record.
func (s *Session) SetHidden(topic string, hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.record.Topics[topic]; ok {
		s.grantLocked(topic, Grant{Hidden: hidden})
	}
}

// SetPosition sets the position from which a client may read, which is unknown when a handler
// subscribes it.
func (s *Session) SetPosition(topic string, at broker.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.record.Topics[topic]; ok && before.Epoch == "" {
		s.grantLocked(topic, Grant{Epoch: at.Epoch, Offset: at.Offset, Hidden: before.Hidden})
	}
}

// Drop removes a topic from the record.
func (s *Session) Drop(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.record.Topics[topic]; ok {
		delete(s.record.Topics, topic)
		s.changedLocked()
	}
}

// DropMatching removes topics from the record.
func (s *Session) DropMatching(topics topicname.Matcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.record.Topics)
	maps.DeleteFunc(s.record.Topics, func(name string, _ Grant) bool { return topics.Matches(name) })
	if len(s.record.Topics) < before {
		s.changedLocked()
	}
}

// Topics returns a copy of the topics in the record.
func (s *Session) Topics() map[string]Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.record.Topics)
}

// takeTopicsLocked gives the session its own topics and, as far as the record has room, those of the
// session that the connection had before or, if it had none, what was granted without a session.
func (s *Session) takeTopicsLocked(own, before, granted map[string]Grant) {
	s.record.Topics = map[string]Grant{}
	maps.Copy(s.record.Topics, own)
	free := s.node.config.MaxBytes
	for topic, g := range own {
		free -= grantBytes(topic, g)
	}
	for _, others := range []map[string]Grant{before, granted} {
		if len(others) == 0 {
			continue // usually
		}
		for _, topic := range slices.Sorted(maps.Keys(others)) {
			g := others[topic]
			if _, has := s.record.Topics[topic]; !has && grantBytes(topic, g) <= free {
				free -= grantBytes(topic, g)
				s.record.Topics[topic] = g
			}
		}
	}
}
