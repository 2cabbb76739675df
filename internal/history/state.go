package history

import (
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A state contains the latest publication of every key, in a doubly linked list in the order of
// offset, in which an update takes the same time whatever the number of keys is.
type state struct {
	keys           map[string]*stateEntry
	oldest, newest *stateEntry
}

type stateEntry struct {
	publication    broker.Publication
	previous, next *stateEntry
}

// set makes a publication the latest one of its key, if it has a key.
func (s *state) set(p broker.Publication) {
	if p.StateKey == "" {
		return
	}
	e := s.keys[p.StateKey]
	if e != nil {
		s.unlink(e)
	}
	if p.Removed {
		delete(s.keys, p.StateKey)
		return
	}
	if e == nil {
		e = &stateEntry{}
		if s.keys == nil {
			s.keys = map[string]*stateEntry{}
		}
		s.keys[p.StateKey] = e
	}
	*e = stateEntry{publication: p, previous: s.newest}
	if s.newest != nil {
		s.newest.next = e
	} else {
		s.oldest = e
	}
	s.newest = e
}

func (s *state) unlink(e *stateEntry) {
	if e.previous != nil {
		e.previous.next = e.next
	} else {
		s.oldest = e.next
	}
	if e.next != nil {
		e.next.previous = e.previous
	} else {
		s.newest = e.previous
	}
}

// since returns the publications that are not older than a time.
func (s *state) since(oldest time.Time) []broker.Publication {
	all := make([]broker.Publication, 0, len(s.keys))
	for e := s.newest; e != nil && !e.publication.At.Before(oldest); e = e.previous {
		all = append(all, e.publication)
	}
	return all
}

// clean removes keys whose publications are older than a time.
func (s *state) clean(oldest time.Time) {
	for range maxRemoved {
		e := s.oldest
		if e == nil || !e.publication.At.Before(oldest) {
			return
		}
		s.unlink(e)
		delete(s.keys, e.publication.StateKey)
	}
}
