package trace

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A jsonParser parses lines that are JSON objects. It ignores unknown members, of which logs have
// many.
type jsonParser struct {
	Time jsonv2.Value `json:"time"`
	Key  jsonv2.Value `json:"key"`
	Cost jsonv2.Value `json:"cost"`
	Type jsonv2.Value `json:"type"`
}

func (p *jsonParser) parse(line []byte) (Record, error) {
	p.Time, p.Key, p.Cost, p.Type = p.Time[:0], p.Key[:0], p.Cost[:0], p.Type[:0]
	if err := jsonv2.Unmarshal(line, p); err != nil {
		return Record{}, fmt.Errorf(`line is not an object such as {"time":"2026-09-01T18:00:00.5Z","key":"ann"}: %w`, err)
	}
	var texts [4]string
	for i, value := range []jsonv2.Value{p.Time, p.Key, p.Cost, p.Type} {
		text, err := textOf(value)
		if err != nil {
			return Record{}, fmt.Errorf("%s is %.80s; %w", columnNames()[i], value, err)
		}
		texts[i] = text
	}
	return newRecord(texts)
}

// textOf returns the text of a string, the digits of a number, and "" for null or a missing value.
func textOf(v jsonv2.Value) (string, error) {
	if len(v) == 0 {
		return "", nil
	}
	switch v.Kind() {
	case 'n':
		return "", nil
	case '0':
		return string(v), nil
	case '"':
		text, err := jsonv2.AppendUnquote(nil, v)
		return string(text), err
	}
	return "", fmt.Errorf("it must be a string or a number")
}
