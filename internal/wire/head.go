package wire

import "github.com/penstock-go/penstock/tracing"

// A Head is the part of an envelope that is known before the payload is read.
type Head struct {
	Meta

	Type []byte // 1 to MaxNameBytes; nil if it could not be read

	unread int   // offset at which FindMeta continues; 0 if there is no more to find
	valid  valid // what Parse need not read again
}

// A valid is the beginning of an envelope that ParseHead has read as strictly as [Parse].
type valid struct {
	end     int  // offset after its last member; 0 if there is none
	hasType bool // it contains the type
	hasMeta bool // it contains meta
}

// ParseHead scans an envelope until it knows the type and meta, in any order of the members. It may
// accept an envelope that [Parse] rejects; its result may then be wrong. If it returns an error,
// the head still contains what could be read.
//
// If a long payload comes before meta, meta may stay unknown: see [Head.FindMeta].
func ParseHead(data []byte) (Head, error) {
	p := headParser{frame: data, whole: true, strict: true}
	if p.usual() {
		return p.head, nil
	}
	err := p.parse()
	return p.head, err
}

// ParseHeadPrefix is [ParseHead] for the first part of an envelope. It returns an error if the part
// ends before the type.
func ParseHeadPrefix(prefix []byte) (Head, error) {
	p := headParser{frame: prefix}
	err := p.parse()
	return p.head, err
}

// FindMeta reads meta if ParseHead has not, and reports whether it had to. It may have to scan the
// whole envelope. data must be the input of [ParseHead].
func (h *Head) FindMeta(data []byte) bool {
	if h.unread == 0 {
		return false
	}
	p := headParser{frame: data, typeDone: true}
	_ = p.members(h.unread)
	h.Meta, h.unread = p.head.Meta, 0
	return true
}

type headParser struct {
	frame       input
	whole       bool // frame is complete, not a prefix
	strict      bool // all members so far are valid, and none of them occurs twice
	tailScanned bool // scanTail has run

	trace    *tracing.TraceContext // to be read; nil if it is not needed
	head     Head
	typeDone bool  // Type is known, or invalid
	metaDone bool  // Meta is known, absent or invalid
	invalid  error // the first error about either of them
}

// parse reads the head. p.head contains what could be read, even if parse returns an error.
func (p *headParser) parse() error {
	if len(p.frame) == 0 {
		return ErrEmpty
	}
	i, err := p.frame.expect(0, '{')
	if err != nil {
		if i < len(p.frame) {
			err = ErrNotObject
		}
		return err
	}
	err = p.members(i)
	switch {
	case p.invalid != nil:
		return p.invalid
	case p.head.Type != nil && (err == nil || !p.whole):
		return nil
	case err == nil:
		return ErrNoType
	default:
		return err
	}
}

// members reads the members of the root object until the type and meta are known. i is the offset
// after a brace or a comma.
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
			p.strict = p.strict && !p.typeDone
			i, err = p.readType(value)
		case "meta":
			p.strict = p.strict && !p.metaDone
			i, err = p.readMeta(value)
		default:
			if p.scanTail(value) || p.deferMember(start) {
				return nil
			}
			p.strict = false
			i, err = p.frame.skip(value)
		}
		if p.strict && err == nil {
			p.head.valid = valid{end: i, hasType: p.typeDone, hasMeta: p.metaDone}
		}
		if err != nil || p.typeDone && p.metaDone {
			return err
		}
		if i = p.frame.space(i); i >= len(p.frame) || p.frame[i] != ',' {
			_, err = p.frame.expect(i, '}')
			return err
		}
		i++
	}
}

// deferMember reports whether the rest of the frame can be left to FindMeta, because only meta is
// missing.
func (p *headParser) deferMember(i int) bool {
	if !p.whole || !p.typeDone || p.head.Type == nil {
		return false
	}
	p.head.unread = i
	return true
}

// skipInvalid records the first error about the type or meta and skips the value, so that the other
// one can still be read.
func (p *headParser) skipInvalid(i int, err error) (int, error) {
	switch err {
	case ErrType, ErrMeta, ErrCorrelationID, ErrTimeout, ErrAck, ErrCredit: //nolint:errorlint // they are not wrapped
		if p.invalid == nil {
			p.invalid = err
		}
		return p.frame.skip(i)
	default:
		return i, err
	}
}

func (p *headParser) readType(i int) (int, error) {
	end, err := p.frame.name(i, &p.head.Type, 1, ErrType)
	if err != nil {
		end, err = p.skipInvalid(i, err)
	}
	p.typeDone = true
	return end, err
}

func (p *headParser) readMeta(i int) (int, error) {
	if i < len(p.frame) && p.frame[i] != '{' {
		p.metaDone = true
		return p.skipInvalid(i, ErrMeta)
	}
	i++
	for first := true; ; first = false {
		if i = p.frame.space(i); first && i < len(p.frame) && p.frame[i] == '}' {
			p.metaDone = true
			return i + 1, nil
		}
		key, value, err := p.frame.key(i)
		if err != nil {
			return value, err
		}
		if i, err = p.readMetaMember(key, value); err != nil {
			return i, err
		}
		if i = p.frame.space(i); i >= len(p.frame) || p.frame[i] != ',' {
			p.metaDone = true
			return p.frame.expect(i, '}')
		}
		i++
	}
}

// skipStrict is skip for a member of meta, and validates it if it is valid.
func (p *headParser) skipStrict(i int) (int, error) {
	var end int
	var err error
	if i < len(p.frame) && (p.frame[i] == '{' || p.frame[i] == '[' || p.frame[i] == '"') {
		end, err = p.frame.value(i, 2)
	} else {
		end, err = p.frame.scalar(i) // timestamp, usually
	}
	if err == nil {
		if next := p.frame.space(end); next < len(p.frame) && (p.frame[next] == ',' || p.frame[next] == '}') {
			return next, nil
		}
	}
	p.strict = false
	return p.frame.skip(i)
}

// readMetaMember reads a member of meta. It reads the first of duplicates, which Parse rejects.
func (p *headParser) readMetaMember(key []byte, i int) (int, error) {
	field := metaFieldOf(key)
	if p.trace != nil {
		p.readTrace(key, i)
	}
	switch {
	case field == 0 && p.strict:
		return p.skipStrict(i)
	case field == 0 || p.head.read&field != 0:
		p.strict = false
		return p.frame.skip(i)
	}
	end, err := p.head.readField(p.frame, field, i)
	if err != nil {
		return p.skipInvalid(i, err)
	}
	return end, nil
}
