package memstore

import (
	"strconv"
	"strings"
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

// stateSize returns the memory of an entry. The key of a map is often another copy than that of the
// latest publication.
func stateSize(key string, packet []byte) int64 {
	return stateBytes + int64(2*len(key)+cap(packet))
}

// size returns the memory of the entry of a key, or 0 if there is none.
func (s *state) size(key string) int64 {
	if e := s.keys[key]; e != nil {
		return e.size()
	}
	return 0
}

func (e *stateEntry) size() int64 { return stateSize(e.publication.StateKey, e.publication.Packet) }

// set makes a publication the latest one of its key, and returns how much memory that takes in
// addition.
func (s *state) set(p *broker.Publication) (grown int64) {
	e := s.keys[p.StateKey]
	if e != nil {
		grown = -e.size()
		s.unlink(e)
	}
	if p.Removed {
		s.remove(p.StateKey)
		return grown
	}
	if e == nil {
		e = &stateEntry{}
		if s.keys == nil {
			s.keys = map[string]*stateEntry{}
		}
		s.keys[p.StateKey] = e
	}
	*e = stateEntry{publication: *p, previous: s.newest}
	if s.newest != nil {
		s.newest.next = e
	} else {
		s.oldest = e
	}
	s.newest = e
	return grown + e.size()
}

// remove removes a key whose entry, if there is one, is not in the list. The memory of the map is
// freed when the last key is removed.
func (s *state) remove(key string) {
	if delete(s.keys, key); len(s.keys) == 0 {
		s.keys = nil
	}
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

// part returns the publications after a cursor that are not older than a time, until their length
// reaches maxBytes, and the cursor of the next part. They descend: a key that changes becomes the newest
// one, behind the reader, so that every key is returned at most once and the parts end.
func (s *state) part(cursor string, oldest time.Time, maxBytes int) (part []broker.Publication, next string) {
	bytes := 0
	e := s.after(cursor)
	for ; e != nil && !e.publication.At.Before(oldest); e = e.previous {
		p := e.publication
		if bytes >= maxBytes {
			last := part[len(part)-1]
			return part, strconv.FormatUint(last.Position.Offset, 10) + " " + last.StateKey
		}
		part = append(part, p)
		bytes += len(p.Packet) + len(p.StateKey)
	}
	return part, ""
}

// after returns the newest entry that is older than the one of a cursor: its offset, a space, and its
// key. If that key has changed since, all that are newer are searched.
func (s *state) after(cursor string) *stateEntry {
	if cursor == "" {
		return s.newest
	}
	text, key, _ := strings.Cut(cursor, " ")
	offset, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil
	}
	if e := s.keys[key]; e != nil && e.publication.Position.Offset == offset {
		return e.previous
	}
	e := s.newest
	for e != nil && e.publication.Position.Offset >= offset {
		e = e.previous
	}
	return e
}

// clean removes keys whose publications are older than a time, and returns how much memory that
// frees.
func (s *state) clean(oldest time.Time) (freed int64) {
	for range maxRemoved {
		e := s.oldest
		if e == nil || !e.publication.At.Before(oldest) {
			break
		}
		freed += e.size()
		s.unlink(e)
		s.remove(e.publication.StateKey)
	}
	return freed
}
