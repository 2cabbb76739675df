package jsoncode

// A Scanner reads one JSON value. After the first failure, every method returns the zero value and
// false, and End returns [ErrFallback], so generated code does not check each call. A method that
// reads a value returns the zero value for null, as the library does.
//
// The zero Scanner reads an empty text. A Scanner must not be used concurrently.
type Scanner struct {
	text   []byte
	at     int // index of the next byte; len(text) after a failure
	depth  int // of objects and arrays
	failed bool
}

// NewScanner returns a scanner of a text, which must not change while it is used.
func NewScanner(text []byte) Scanner { return Scanner{text: text} }

// End returns [ErrFallback] if the scanner has failed or if anything but space follows.
func (s *Scanner) End() error {
	if s.peek(); s.failed || s.at < len(s.text) {
		return ErrFallback
	}
	return nil
}

// Fail makes the scanner fail.
func (s *Scanner) Fail() {
	s.failed = true
	s.at = len(s.text)
}

// Once fails if a bit of seen is set, and sets it. The bit stands for the name of a member, which
// must not occur twice in an object.
func (s *Scanner) Once(seen *uint64, bit uint64) {
	if *seen&bit != 0 {
		s.Fail()
	}
	*seen |= bit
}

// Null reads null. It returns false, and reads nothing, if something else follows.
func (s *Scanner) Null() bool {
	if s.peek() != 'n' {
		return false
	}
	return s.literal("null")
}

// Object reads the beginning of an object and reports whether a member follows.
func (s *Scanner) Object() bool { return s.open('{', '}') }

// NextMember reads what follows a member and reports whether another one follows.
func (s *Scanner) NextMember() bool { return s.next('}') }

// Array reads the beginning of an array and reports whether an element follows.
func (s *Scanner) Array() bool { return s.open('[', ']') }

// NextElement reads what follows an element and reports whether another one follows.
func (s *Scanner) NextElement() bool { return s.next(']') }

func (s *Scanner) open(begin, end byte) bool {
	if s.peek() != begin || s.depth == maxNesting {
		s.Fail()
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

func (s *Scanner) next(end byte) bool {
	switch s.peek() {
	case ',':
		s.at++
		return true
	case end:
		s.at++
		s.depth--
		return false
	default:
		s.Fail()
		return false
	}
}

// peek skips space and returns the next byte, or 0 at the end.
func (s *Scanner) peek() byte {
	if s.at < len(s.text) {
		if c := s.text[s.at]; c > ' ' {
			return c
		}
	}
	return s.peekAfterSpace()
}

func (s *Scanner) peekAfterSpace() byte {
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
func (s *Scanner) literal(word string) bool {
	if end := s.at + len(word); end <= len(s.text) && string(s.text[s.at:end]) == word {
		s.at = end
		return true
	}
	return false
}

// Bool reads a boolean.
func (s *Scanner) Bool() bool {
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
	s.Fail()
	return false
}
