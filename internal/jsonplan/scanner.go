package jsonplan

// A scanner reads one JSON value. After the first failure, every method returns the zero value and false,
// and finished reports false, so its callers need not check each call. A method that reads a value returns
// the zero value for null, as the library does. The text must not change while it is read; nothing that a
// method returns refers to it unless the method says so.
type scanner struct {
	text   []byte
	at     int // index of the next byte; len(text) after a failure
	depth  int // of objects and arrays
	failed bool
	strict bool     // members without a field are a failure
	names  [][]byte // of the open objects, without a field: parts of the text, or copies
	recent recentStrings
}

// finished reports whether the scanner has read the whole text.
func (s *scanner) finished() bool {
	s.peek()
	return !s.failed && s.at == len(s.text)
}

// fail makes the scanner fail.
func (s *scanner) fail() {
	s.failed = true
	s.at = len(s.text)
}

// null reads null. It returns false, and reads nothing, if something else follows.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	return s.literal("null")
}

// object reads the beginning of an object and reports whether a member follows.
func (s *scanner) object() bool { return s.open('{', '}') }

// nextMember reads what follows a member and reports whether another one follows.
func (s *scanner) nextMember() bool { return s.next('}') }

// array reads the beginning of an array and reports whether an element follows.
func (s *scanner) array() bool { return s.open('[', ']') }

// nextElement reads what follows an element and reports whether another one follows.
func (s *scanner) nextElement() bool { return s.next(']') }

func (s *scanner) open(begin, end byte) bool {
	if s.peek() != begin || s.depth == maxNesting {
		s.fail()
		return false
	}
	s.at++
	if s.peek() == end {
		s.at++
		return false
	}
	s.depth++
	return true
}

func (s *scanner) next(end byte) bool {
	switch s.peek() {
	case ',':
		s.at++
		return true
	case end:
		s.at++
		s.depth--
		return false
	default:
		s.fail()
		return false
	}
}

// peek skips space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		if c := s.text[s.at]; c > ' ' {
			return c
		}
	}
	return s.peekAfterSpace()
}

func (s *scanner) peekAfterSpace() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// literal reads a word. The byte after it is checked by what reads on: no delimiter continues a word.
func (s *scanner) literal(word string) bool {
	if end := s.at + len(word); end <= len(s.text) && string(s.text[s.at:end]) == word {
		s.at = end
		return true
	}
	return false
}

// readBool reads a boolean.
func (s *scanner) readBool() bool {
	switch s.peek() {
	case 't':
		if s.literal("true") {
			return true
		}
	case 'f':
		if s.literal("false") {
			return false
		}
	case 'n':
		if s.literal("null") {
			return false
		}
	}
	s.fail()
	return false
}
