package envelope

// A Head is what is known of a frame without reading it.
type Head struct {
	Type          []byte // 1 to MaxNameBytes; nil if it could not be read
	CorrelationID []byte // at most MaxNameBytes; empty if there is none, or it is not known yet

	unread int // where FindCorrelationID goes on; 0 if there is no more to find
}

// ParseHead reads a frame until it knows its type and correlation id, wherever
// they stand. It may accept what [Parse] rejects, and then be wrong about both.
// With an error it returns what it could read all the same.
//
// If the payload stands before meta and is too long to look behind, the
// correlation id stays unknown: see [Head.FindCorrelationID].
func ParseHead(data []byte) (Head, error) {
	return parseHead(headParser{frame: data, whole: true})
}

// ParseHeadPrefix is ParseHead for the beginning of a frame. It is an error if
// that ends before the type.
func ParseHeadPrefix(prefix []byte) (Head, error) {
	return parseHead(headParser{frame: prefix})
}

// FindCorrelationID returns the correlation id, for which it may have to read
// the frame to its end. Data must be what the head was parsed from.
func (h *Head) FindCorrelationID(data []byte) []byte {
	if h.unread == 0 {
		return h.CorrelationID
	}
	p := headParser{frame: data, typeDone: true}
	_ = p.members(h.unread)
	h.CorrelationID, h.unread = p.head.CorrelationID, 0
	return h.CorrelationID
}

type headParser struct {
	frame  frame
	whole  bool // the frame ends where it should
	behind bool // its end has been looked at

	head     Head
	typeDone bool  // Type is known, or will never be
	idDone   bool  // so is CorrelationID
	wrong    error // the first thing that is wrong with either
}

func parseHead(p headParser) (Head, error) {
	if len(p.frame) == 0 {
		return Head{}, ErrEmpty
	}
	i, err := p.frame.expect(0, '{')
	if err != nil {
		if i < len(p.frame) {
			err = ErrNotObject
		}
		return Head{}, err
	}
	err = p.members(i)
	switch {
	case p.wrong != nil:
		err = p.wrong
	case p.head.Type != nil && (err == nil || !p.whole):
		err = nil
	case err == nil:
		err = ErrNoType
	}
	return p.head, err
}

// members reads the root's members, from behind a brace or a comma, until there
// is no more to know.
func (p *headParser) members(i int) error {
	for first := true; ; first = false {
		if i = p.frame.space(i); first && i < len(p.frame) && p.frame[i] == '}' {
			return nil
		}
		start := i
		key, value, err := p.frame.key(i)
		if err != nil {
			return err
		}
		switch string(key) {
		case "type":
			i, err = p.readType(value)
		case "meta":
			i, err = p.readMeta(value)
		default:
			if p.lookBehind(value) || p.postpone(start) {
				return nil
			}
			i, err = p.frame.skip(value)
		}
		if err != nil || p.typeDone && p.idDone {
			return err
		}
		if i = p.frame.space(i); i >= len(p.frame) || p.frame[i] != ',' {
			_, err = p.frame.expect(i, '}')
			return err
		}
		i++
	}
}

// postpone leaves the rest to FindCorrelationID if only that needs it.
func (p *headParser) postpone(i int) bool {
	if !p.whole || !p.typeDone || p.head.Type == nil {
		return false
	}
	p.head.unread = i
	return true
}

// note keeps the first error about a name and goes on behind it.
func (p *headParser) note(i int, err error) (int, error) {
	switch err {
	case ErrType, ErrMeta, ErrCorrelationID: //nolint:errorlint // they are not wrapped
		if p.wrong == nil {
			p.wrong = err
		}
		return p.frame.skip(i)
	default:
		return i, err
	}
}

func (p *headParser) readType(i int) (int, error) {
	end, err := p.frame.name(i, &p.head.Type, 1, ErrType)
	if err != nil {
		end, err = p.note(i, err)
	}
	p.typeDone = true
	return end, err
}

func (p *headParser) readMeta(i int) (int, error) {
	if i < len(p.frame) && p.frame[i] != '{' {
		p.idDone = true
		return p.note(i, ErrMeta)
	}
	i++
	for first := true; ; first = false {
		if i = p.frame.space(i); first && i < len(p.frame) && p.frame[i] == '}' {
			p.idDone = true
			return i + 1, nil
		}
		key, value, err := p.frame.key(i)
		if err != nil {
			return value, err
		}
		if string(key) == "correlationId" {
			i, err = p.readCorrelationID(value)
		} else {
			i, err = p.frame.skip(value)
		}
		if err != nil || p.typeDone && p.idDone {
			return i, err
		}
		if i = p.frame.space(i); i >= len(p.frame) || p.frame[i] != ',' {
			p.idDone = true
			return p.frame.expect(i, '}')
		}
		i++
	}
}

func (p *headParser) readCorrelationID(i int) (int, error) {
	end, err := p.frame.name(i, &p.head.CorrelationID, 0, ErrCorrelationID)
	if err != nil {
		end, err = p.note(i, err)
	}
	p.idDone = true
	return end, err
}
