package jsonplan

// readAny reads a value into the type that the library chooses for an interface.
func (s *scanner) readAny() any {
	switch s.peek() {
	case 'n':
		s.nullNumber()
		return nil
	case 't', 'f':
		return s.readBool()
	case '"':
		return s.readString()
	case '{':
		return s.readAnyMap()
	case '[':
		list := []any{}
		for more := s.array(); more; more = s.nextElement() {
			list = append(list, s.readAny())
		}
		return list
	default:
		return s.readFloat(64)
	}
}

// readAnyMap reads an object.
func (s *scanner) readAnyMap() map[string]any {
	members := map[string]any{}
	n := 0
	for more := s.object(); more; more = s.nextMember() {
		members[s.key()] = s.readAny()
		if n++; len(members) < n { // the name occurs twice
			s.fail()
		}
	}
	return members
}
