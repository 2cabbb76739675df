// Package sample makes payloads from a contract.
package sample

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
)

// A Kind says how a server answers a message.
type Kind string

// Kinds of messages from clients.
const (
	Event  Kind = "event"
	Call   Kind = "call"
	Stream Kind = "stream"
)

// A document is the part of a contract that describes what clients send.
type document struct {
	Events  []message
	Calls   []message
	Streams []message
	Defs    map[string]*schema `json:"$defs"`
}

type message struct {
	Type    string
	Payload *schema
}

// A schema has the keywords that the types of a contract have. A type that encodes itself may have
// others.
type schema struct {
	Ref         string   `json:"$ref"`
	Type        types    `json:"type"`
	Const       any      `json:"const"`
	Enum        []any    `json:"enum"`
	Examples    []any    `json:"examples"`
	AnyOf       []schema `json:"anyOf"`
	Format      string   `json:"format"`
	Pattern     string   `json:"pattern"`
	MinLength   int      `json:"minLength"`
	MaxLength   *int     `json:"maxLength"`
	Minimum     *float64 `json:"minimum"`
	Maximum     *float64 `json:"maximum"`
	MinItems    int      `json:"minItems"`
	Items       *schema  `json:"items"`
	PrefixItems []schema `json:"prefixItems"`
	Required    []string `json:"required"`

	Properties map[string]*schema `json:"properties"`
}

// UnmarshalJSON implements json.Unmarshaler. The schema true permits all values.
func (s *schema) UnmarshalJSON(text []byte) error {
	if string(text) == "true" {
		return nil
	}
	type plain schema
	return json.Unmarshal(text, (*plain)(s))
}

// types is one type or several.
type types []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *types) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = make(types, 1)
	return json.Unmarshal(text, &(*t)[0])
}

// Payload returns a valid payload for a message type of a contract, as Contract.Document has encoded
// it. It has the required members only: the first value of an enumeration, "text", 1 or the nearest
// number in range, false, and lists of the shortest valid length.
func Payload(text []byte, typ string) (payload string, kind Kind, err error) {
	if _, err := contract.Parse(text); err != nil {
		return "", "", err
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return "", "", err
	}
	var known []string
	for _, list := range []struct {
		kind     Kind
		messages []message
	}{{Call, doc.Calls}, {Event, doc.Events}, {Stream, doc.Streams}} {
		for _, m := range list.messages {
			if m.Type == typ {
				payload, err := doc.encode(m)
				return payload, list.kind, err
			}
			known = append(known, m.Type)
		}
	}
	slices.Sort(known)
	return "", "", fmt.Errorf("the contract has no message %q that clients send; it has %s", typ, strings.Join(known, ", "))
}

func (d *document) encode(m message) (string, error) {
	value, err := d.value(m.Payload, 0)
	if err != nil {
		return "", fmt.Errorf("no payload can be made for %q from its schema; give one with -payload: %w", m.Type, err)
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// maxDepth bounds values of types that contain themselves.
const maxDepth = 16

func (d *document) value(s *schema, depth int) (any, error) {
	switch {
	case depth > maxDepth:
		return nil, errors.New("a type contains itself")
	case s.Ref != "":
		return d.value(d.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")], depth+1)
	case s.Const != nil:
		return s.Const, nil
	case len(s.Examples) > 0:
		return s.Examples[0], nil
	case len(s.Enum) > 0:
		return s.Enum[0], nil
	case len(s.AnyOf) > 0:
		return d.value(&s.AnyOf[0], depth+1)
	}
	for _, typ := range s.Type {
		switch typ {
		case "string":
			return textFor(s)
		case "integer", "number":
			return numberFor(s), nil
		case "boolean":
			return false, nil
		case "array":
			return d.list(s, depth)
		}
	}
	return d.object(s, depth)
}

func (d *document) object(s *schema, depth int) (any, error) {
	object := map[string]any{}
	for _, name := range s.Required {
		member := s.Properties[name]
		if member == nil {
			continue // the contract says nothing about it
		}
		var err error
		if object[name], err = d.value(member, depth+1); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return object, nil
}

func (d *document) list(s *schema, depth int) (any, error) {
	list := []any{}
	for i := range max(len(s.PrefixItems), s.MinItems) {
		item := s.Items
		if i < len(s.PrefixItems) {
			item = &s.PrefixItems[i]
		}
		if item == nil {
			break
		}
		value, err := d.value(item, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

// textFor returns the first of several texts that has the pattern and length of a schema.
func textFor(s *schema) (string, error) {
	if s.Format == "date-time" {
		return "2026-01-01T00:00:00Z", nil
	}
	pattern, err := regexp.Compile(s.Pattern)
	if err != nil {
		return "", err
	}
	for _, text := range []string{"text", "1", "AAAA", ""} {
		if n := s.MinLength - len(text); n > 0 {
			text += strings.Repeat("1", n)
		}
		if s.MaxLength != nil {
			text = text[:min(len(text), *s.MaxLength)]
		}
		if pattern.MatchString(text) {
			return text, nil
		}
	}
	return "", fmt.Errorf("texts have the pattern %s", s.Pattern)
}

func numberFor(s *schema) float64 {
	n := 1.0
	if s.Minimum != nil {
		n = max(n, *s.Minimum)
	}
	if s.Maximum != nil {
		n = min(n, *s.Maximum)
	}
	return n
}
