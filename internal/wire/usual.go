package wire

import "unicode/utf8"

// usual reads a head as clients write it: the type, and a meta with a timestamp and perhaps a correlation
// ID, in this order and without space. It reads nothing and returns false if the envelope begins in another way.
func (p *headParser) usual() bool {
	f := p.frame
	name, i := f.plainMember(0, `{"type":"`)
	if len(name) == 0 {
		return false
	}
	start := i + len(`,"meta":{"timestamp":`)
	if start >= len(f) || string(f[i:start]) != `,"meta":{"timestamp":` || f[start] == '0' {
		return false
	}
	for i = start; i < len(f) && '0' <= f[i] && f[i] <= '9'; i++ {
	}
	if i == start || i >= len(f) {
		return false
	}
	meta := Meta{}
	if f[i] == ',' {
		if meta.CorrelationID, i = f.plainMember(i, `,"correlationId":"`); meta.CorrelationID == nil || i >= len(f) {
			return false
		}
		meta.read = fieldCorrelationID
	}
	if f[i] != '}' {
		return false
	}
	p.typeDone, p.metaDone = true, true
	p.head = Head{Meta: meta, Type: name, valid: valid{end: i + 1, hasType: true, hasMeta: true}}
	return true
}

// plainMember returns the content of a string of at most MaxNameBytes plain ASCII characters that follows the text before
// at i, and the offset after it. It returns nil for anything else.
func (f input) plainMember(i int, before string) (content []byte, end int) {
	start := i + len(before)
	if start > len(f) || string(f[i:start]) != before {
		return nil, i
	}
	for end = start; end < len(f) && f[end] >= ' ' && f[end] < utf8.RuneSelf && f[end] != '\\'; end++ {
		if f[end] == '"' {
			if end-start > MaxNameBytes {
				return nil, i
			}
			return f[start:end], end + 1
		}
	}
	return nil, i
}
