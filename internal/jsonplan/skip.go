package jsonplan

import (
	"slices"
	"unicode/utf8"
)

// fewNames is how many names are compared with each other one by one.
const fewNames = 8

// unknown are the names of an object that a plan does not know.
type unknown struct {
	from int                 // the index of the first ones in scanner.names
	many map[string]struct{} // the others
}

// addName adds a name. It reports false if the name occurs twice or is not valid UTF-8.
func (s *scanner) addName(u *unknown, name []byte) bool {
	if !utf8.Valid(name) {
		return false
	}
	few := s.names[u.from:]
	for _, other := range few {
		if string(other) == string(name) {
			return false
		}
	}
	if len(few) < fewNames {
		s.names = append(s.names, name)
		return true
	}
	if u.many == nil {
		u.many = map[string]struct{}{}
	}
	before := len(u.many)
	u.many[string(name)] = struct{}{}
	return len(u.many) > before
}

// dropNames removes the names of an object from those of the objects around it.
func (s *scanner) dropNames(from int) {
	clear(s.names[from:])
	s.names = s.names[:from]
}

// readRaw returns a copy of the text of any value.
func (s *scanner) readRaw() []byte {
	s.peek()
	begin := s.at
	s.skip()
	return slices.Clone(s.text[begin:s.at:s.at])
}

// skip reads any value. It fails where the library would return an error.
func (s *scanner) skip() {
	switch s.peek() {
	case '{':
		names := unknown{from: len(s.names)}
		for more := s.object(); more; more = s.nextMember() {
			s.skipNamed(&names, s.name())
		}
		s.dropNames(names.from)
	case '[':
		for more := s.array(); more; more = s.nextElement() {
			s.skip()
		}
	case '"':
		if raw, escaped := s.raw(s.at+1, s.at+1); escaped {
			s.unescape(raw)
		}
	case 't', 'f', 'n':
		s.readBool()
	default:
		s.number()
	}
}

// skipNamed reads the value of a member without a field.
func (s *scanner) skipNamed(names *unknown, name []byte) {
	if !s.addName(names, name) {
		s.fail()
	}
	s.skip()
}
