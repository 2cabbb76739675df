package trace

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A jsonParser parses lines that are JSON objects. It ignores unknown members, of which logs have
// many.
type jsonParser struct {
	Time jsontext.Value `json:"time"`
	Key  jsontext.Value `json:"key"`
	Cost jsontext.Value `json:"cost"`
	Type jsontext.Value `json:"type"`
}

func (p *jsonParser) parse(line []byte) (Record, error) {
	p.Time, p.Key, p.Cost, p.Type = p.Time[:0], p.Key[:0], p.Cost[:0], p.Type[:0]
	if err := json.Unmarshal(line, p); err != nil {
		return Record{}, fmt.Errorf(`line is not an object such as {"time":"2026-09-01T18:00:00.5Z","key":"ann"}: %w`, err)
	}
	var texts [4]string
	for i, value := range []jsontext.Value{p.Time, p.Key, p.Cost, p.Type} {
		text, err := textOf(value)
		if err != nil {
			return Record{}, fmt.Errorf("%s is %.80s; %w", columnNames()[i], value, err)
		}
		texts[i] = text
	}
	return newRecord(texts)
}

// textOf returns the text of a string, the digits of a number, and "" for null or a missing value.
func textOf(v jsontext.Value) (string, error) {
	if len(v) == 0 {
		return "", nil
	}
	switch v.Kind() {
	case 'n':
		return "", nil
	case '0':
		return string(v), nil
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		return string(text), err
	}
	return "", fmt.Errorf("it must be a string or a number")
}
