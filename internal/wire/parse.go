package wire

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/jsonplan"
)

// MaxDepth is the maximum nesting depth, including the root object.
const MaxDepth = 64

// MaxNameBytes is the maximum length of a type and of a correlation ID.
const MaxNameBytes = 128

// An Envelope is the content of a valid envelope.
type Envelope struct {
	Meta

	Type    []byte // 1 to MaxNameBytes
	Payload []byte // JSON; nil if there is none
}

// Parse validates a whole envelope. It must be one JSON object with nothing after it, in valid
// UTF-8, nested at most MaxDepth levels. It must have a type, and must not repeat type, meta,
// payload or a member of [Meta]. The syntax of other members is validated; their content is ignored.
// For every envelope that Parse accepts, [ParseHead] finds the same type and meta.
func Parse(data []byte) (Envelope, error) {
	if !utf8.Valid(data) {
		return Envelope{}, ErrUTF8
	}
	return ParseText(data)
}

// ParseText is Parse for data that is known to be valid UTF-8, such as a WebSocket text message.
func ParseText(data []byte) (Envelope, error) {
	if len(data) == 0 {
		return Envelope{}, ErrEmpty
	}
	p := parser{frame: data}
	return p.finish(p.object(0))
}

// Parse is [Parse] for an envelope in valid UTF-8 whose head is h: it validates what ParseHead has not.
// data must be the input of [ParseHead], which must not have returned an error.
func (h *Head) Parse(data []byte) (Envelope, error) {
	if h.valid.end == 0 {
		return ParseText(data)
	}
	p := parser{frame: data, hasMeta: h.valid.hasMeta}
	if h.valid.hasType {
		p.found.Type = h.Type
	}
	if h.valid.hasMeta {
		p.found.Meta = h.Meta
	}
	return p.finish(p.frame.membersAfter(h.valid.end, p.member))
}

type parser struct {
	frame   input
	found   Envelope
	hasMeta bool
}

// finish returns the envelope. i is the offset after the root object, and err its error.
func (p *parser) finish(i int, err error) (Envelope, error) {
	if err != nil {
		return Envelope{}, err
	}
	if i = p.frame.space(i); i < len(p.frame) {
		return Envelope{}, p.frame.unexpected(i)
	}
	if p.found.Type == nil {
		return Envelope{}, ErrNoType
	}
	return p.found, nil
}

func (p *parser) object(i int) (int, error) {
	i, err := p.frame.expect(i, '{')
	if err != nil {
		if i < len(p.frame) {
			err = ErrNotObject
		}
		return i, err
	}
	return p.frame.members(i, p.member)
}

func (p *parser) member(key []byte, i int) (int, error) {
	switch string(key) {
	case "type":
		if p.found.Type != nil {
			return i, errDuplicate(key)
		}
		return p.frame.name(i, &p.found.Type, 1, ErrType)
	case "meta":
		if p.hasMeta {
			return i, errDuplicate(key)
		}
		p.hasMeta = true
		if i >= len(p.frame) || p.frame[i] != '{' {
			return i, ErrMeta
		}
		return p.frame.members(i+1, p.metaMember)
	case "payload":
		if p.found.Payload != nil {
			return i, errDuplicate(key)
		}
		end, err := p.frame.value(i, 1)
		p.found.Payload = p.frame[i:end]
		return end, err
	default:
		return p.frame.value(i, 1)
	}
}

func (p *parser) metaMember(key []byte, i int) (int, error) {
	field := metaFieldOf(key)
	switch {
	case field == 0:
		return p.frame.value(i, 2)
	case p.found.read&field != 0:
		return i, errDuplicate(key)
	default:
		return p.found.readField(p.frame, field, i)
	}
}

// members validates an object whose first brace is before i. It calls member with each key and the
// offset of its value.
func (f input) members(i int, member func(key []byte, i int) (int, error)) (int, error) {
	if i = f.space(i); i < len(f) && f[i] == '}' {
		return i + 1, nil
	}
	key, value, err := f.key(i)
	if err != nil {
		return value, err
	}
	if i, err = member(key, value); err != nil {
		return i, err
	}
	return f.membersAfter(i, member)
}

// membersAfter is members for the part of an object that follows a member. i is the offset after it.
func (f input) membersAfter(i int, member func(key []byte, i int) (int, error)) (int, error) {
	for {
		if i = f.space(i); i >= len(f) || f[i] != ',' {
			return f.expect(i, '}')
		}
		key, value, err := f.key(i + 1)
		if err != nil {
			return value, err
		}
		if i, err = member(key, value); err != nil {
			return i, err
		}
	}
}

// key reads the key of a member and returns it with the offset of the value.
func (f input) key(i int) (key []byte, value int, err error) {
	start := f.space(i)
	if key, i, err = f.unquoted(start); err != nil {
		return nil, i, err
	}
	if i, err = f.expect(i, ':'); err != nil {
		return nil, i, err
	}
	return key, f.space(i), nil
}

// name reads a string of minBytes to MaxNameBytes bytes into dst. It returns invalid for any other
// value.
func (f input) name(i int, dst *[]byte, minBytes int, invalid error) (int, error) {
	if i < len(f) && f[i] != '"' {
		return i, invalid
	}
	name, end, err := f.unquoted(i)
	if err != nil {
		return end, err
	}
	if len(name) < minBytes || len(name) > MaxNameBytes || !utf8.Valid(name) {
		return end, invalid
	}
	*dst = name
	return end, nil
}

// An input is JSON text. Its methods take the offset at which an element begins and return the
// offset after it.
type input []byte

// unexpected returns the error for a wrong or missing byte at i.
func (f input) unexpected(i int) error {
	if i >= len(f) {
		return ErrTruncated
	}
	return &SyntaxError{Offset: i}
}

func (f input) space(i int) int {
	for i < len(f) && (f[i] == ' ' || f[i] == '\n' || f[i] == '\t' || f[i] == '\r') {
		i++
	}
	return i
}

// trimmed returns the end of what is before the white space that ends at end.
func (f input) trimmed(end int) int {
	for end > 0 && (f[end-1] == ' ' || f[end-1] == '\n' || f[end-1] == '\t' || f[end-1] == '\r') {
		end--
	}
	return end
}

// expect skips white space and requires the byte c.
func (f input) expect(i int, c byte) (int, error) {
	i = f.space(i)
	if i >= len(f) || f[i] != c {
		return i, f.unexpected(i)
	}
	return i + 1, nil
}

func (f input) text(i int) (int, error) {
	i, err := f.expect(i, '"')
	for err == nil {
		i = f.plain(i)
		switch {
		case i >= len(f) || f[i] < ' ':
			return i, f.unexpected(i)
		case f[i] == '"':
			return i + 1, nil
		default:
			i, err = f.escape(i)
		}
	}
	return i, err
}

// plain returns the offset of the next quote, backslash or control character.
func (f input) plain(i int) int { return i + jsonplan.Plain(f[i:]) }

func (f input) escape(i int) (int, error) {
	i++
	if i >= len(f) {
		return i, ErrTruncated
	}
	switch f[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		for range 4 {
			if i++; i >= len(f) || !isHex(f[i]) {
				return i, f.unexpected(i)
			}
		}
		return i + 1, nil
	default:
		return i, f.unexpected(i)
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// unquoted validates a string and returns its content.
func (f input) unquoted(i int) (content []byte, end int, err error) {
	if i < len(f) && f[i] == '"' {
		if end = f.plain(i + 1); end < len(f) && f[end] == '"' {
			return f[i+1 : end], end + 1, nil
		}
	}
	if end, err = f.text(i); err != nil {
		return nil, end, err
	}
	return unescape(f[i:end]), end, nil
}

func unescape(quoted []byte) []byte {
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return nil
	}
	return []byte(s)
}

func (f input) scalar(i int) (int, error) {
	if i >= len(f) {
		return i, ErrTruncated
	}
	switch f[i] {
	case 't':
		return f.literal(i, "true")
	case 'f':
		return f.literal(i, "false")
	case 'n':
		return f.literal(i, "null")
	default:
		return f.number(i)
	}
}

func (f input) literal(i int, expected string) (int, error) {
	for j := range len(expected) {
		if i+j >= len(f) || f[i+j] != expected[j] {
			return i + j, f.unexpected(i + j)
		}
	}
	return i + len(expected), nil
}

// number follows RFC 8259, section 6.
func (f input) number(i int) (int, error) {
	if i < len(f) && f[i] == '-' {
		i++
	}
	var err error
	if i < len(f) && f[i] == '0' {
		i++
	} else if i, err = f.digits(i); err != nil {
		return i, err
	}
	if i < len(f) && f[i] == '.' {
		if i, err = f.digits(i + 1); err != nil {
			return i, err
		}
	}
	if i < len(f) && (f[i] == 'e' || f[i] == 'E') {
		if i++; i < len(f) && (f[i] == '+' || f[i] == '-') {
			i++
		}
		return f.digits(i)
	}
	return i, nil
}

// digits requires at least one digit.
func (f input) digits(i int) (int, error) {
	start := i
	for i < len(f) && f[i] >= '0' && f[i] <= '9' {
		i++
	}
	if i == start {
		return i, f.unexpected(i)
	}
	return i, nil
}
