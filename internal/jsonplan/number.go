package jsonplan

import "strconv"

// readInt reads an integer of a number of bits, from 8 to 64. It fails for numbers out of range and for
// those with a fraction or an exponent.
func (s *scanner) readInt(bits int) int64 {
	c := s.peek()
	negative := c == '-'
	if negative {
		s.at++
	} else if c == 'n' {
		return s.nullNumber()
	}
	n := s.digits()
	limit := uint64(1) << (bits - 1)
	switch {
	case negative && n <= limit:
		return -int64(n)
	case !negative && n < limit:
		return int64(n)
	default:
		s.fail()
		return 0
	}
}

// readUint is readInt for unsigned integers.
func (s *scanner) readUint(bits int) uint64 {
	if s.peek() == 'n' {
		return uint64(s.nullNumber())
	}
	n := s.digits()
	if bits < 64 && n>>bits != 0 {
		s.fail()
		return 0
	}
	return n
}

// readFloat reads a number and returns the nearest one of 32 or 64 bits. It fails for numbers out of
// range.
func (s *scanner) readFloat(bits int) float64 {
	if s.peek() == 'n' {
		return float64(s.nullNumber())
	}
	number := s.number()
	f, err := strconv.ParseFloat(string(number), bits)
	if err != nil {
		s.fail()
		return 0
	}
	return f
}

// quote reads the quote before a number in a string, or null. It reports whether a number follows.
func (s *scanner) quote() bool {
	if s.peek() != '"' {
		s.nullNumber()
		return false
	}
	if s.at++; s.at < len(s.text) && (s.text[s.at] == '-' || isDigit(s.text[s.at])) {
		return true
	}
	s.fail()
	return false
}

// unquote reads the quote after a number.
func (s *scanner) unquote() {
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		s.fail()
		return
	}
	s.at++
}

func (s *scanner) nullNumber() int64 {
	if !s.null() {
		s.fail()
	}
	return 0
}

// digits reads an integer without a sign. What reads on fails if the number continues: neither a
// fraction nor a digit after 0 is a delimiter.
func (s *scanner) digits() (n uint64) {
	begin := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		n = 10*n + uint64(s.text[s.at]-'0')
		s.at++
		if n == 0 {
			break
		}
	}
	const maxWidth = 20 // of 1<<64 - 1, which begins with 1: the sum of 20 such digits has not passed zero if it is at least 1e19
	switch width := s.at - begin; {
	case width == 0, width > maxWidth, width == maxWidth && (s.text[begin] != '1' || n < 1e19):
		s.fail()
		return 0
	}
	return n
}

// number reads a number and returns its text.
func (s *scanner) number() []byte {
	begin, i, text := s.at, s.at, s.text
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if i = skipDigits(text, i); i < 0 {
		s.fail()
		return nil
	}
	if i < len(text) && text[i] == '.' {
		i = skipDigits(text, i+1)
	}
	if i >= 0 && i < len(text) && text[i]|0x20 == 'e' {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		i = skipDigits(text, i)
	}
	if i < 0 {
		s.fail()
		return nil
	}
	s.at = i
	return text[begin:i]
}

// skipDigits returns the index after one or more digits, or -1.
func skipDigits(text []byte, at int) int {
	i := at
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	if i == at {
		return -1
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
