package wire

import (
	"bytes"

	"github.com/penstock-go/penstock/internal/jsonplan"
)

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

// plainMember returns the content of a string of at most MaxNameBytes in ASCII without escapes that follows the text before at i, and
// the offset after it. It returns nil for anything else.
func (f input) plainMember(i int, before string) (content []byte, end int) {
	start := i + len(before)
	if start > len(f) || string(f[i:start]) != before {
		return nil, i
	}
	end = start + jsonplan.PlainASCII(f[start:])
	if end >= len(f) || f[end] != '"' || end-start > MaxNameBytes {
		return nil, i
	}
	return f[start:end], end + 1
}

// PayloadIfValid returns what the payload is if the envelope is valid, without reading it: what lies
// between "payload": and the last brace. ok is false if it cannot tell: because ParseHead has not read
// both type and meta, because another member follows them, or because the payload may be nested too
// deeply, for which each level takes two bytes. If the result is one JSON value, [Head.Parse] returns it, too, and no error. data must be the
// input of [ParseHead] in valid UTF-8, and ParseHead must not have returned an error.
func (h *Head) PayloadIfValid(data []byte) (payload []byte, ok bool) {
	if !h.valid.hasType || !h.valid.hasMeta {
		return nil, false
	}
	f := input(data)
	i, found := f.payloadAfter(h.valid.end)
	if !found {
		return nil, false
	}
	end := f.trimmed(len(f)) - 1
	if end <= i || f[end] != '}' {
		return nil, false
	}
	payload = f[i:f.trimmed(end)]
	return payload, len(payload) < 2*MaxDepth || bytes.Count(payload, []byte("{"))+bytes.Count(payload, []byte("[")) < MaxDepth
}

// payloadAfter returns the offset of the payload if that is the member after the one that ends at i.
func (f input) payloadAfter(i int) (value int, found bool) {
	const usual = `,"payload":`
	if end := i + len(usual); end < len(f) && string(f[i:end]) == usual {
		return f.space(end), true
	}
	if i = f.space(i); i >= len(f) || f[i] != ',' {
		return 0, false
	}
	key, value, err := f.key(i + 1)
	return value, err == nil && string(key) == "payload"
}
