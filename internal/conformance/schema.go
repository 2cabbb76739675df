package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/docs"
)

// A schema describes the messages of the protocol, as docs/protocol.json does.
type schema struct {
	Meta     []field
	Messages []struct {
		Type, From, Payload string
		CorrelationID       bool
	}
	Types []struct {
		Name   string
		Fields []field
		Embeds []string
	}
}

// A field is a member of an object.
type field struct {
	Name, Type, From string
	Optional         bool
	Min              *int64
	MinBytes         int
	MaxBytes         int
}

func readSchema() *schema {
	s := &schema{}
	if err := json.Unmarshal(docs.Protocol, s); err != nil {
		panic(err)
	}
	return s
}

// checkMessage returns what is wrong with a message of the client or the server, or "". Payloads of the application are not checked.
func (s *schema) checkMessage(from string, message map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(message)) {
		if !slices.Contains([]string{"type", "meta", "payload"}, name) && (name != "data" || from == "client") {
			return fmt.Sprintf("the envelope has the unknown member %q", name)
		}
	}
	name, ok := message["type"].(string)
	if !ok || name == "" || len(name) > 128 {
		return "type must be a string of 1 to 128 bytes"
	}
	if problem := s.checkMeta(from, message["meta"]); problem != "" && name != "__heartbeat_ack" {
		return problem
	}
	for _, m := range s.Messages {
		if m.Type != name {
			continue
		}
		if m.From != from && m.From != "both" {
			return fmt.Sprintf("a %s does not send %s", from, name)
		}
		payload := message["payload"]
		if m.Payload == "" && payload != nil && name != "$ws:rpc-progress" {
			return name + " has no payload"
		}
		if m.Payload == "" || payload == nil && name == "$ws:hello" || payload == nil && m.Payload == "StreamEnd" {
			return ""
		}
		return s.checkValue("payload", payload, m.Payload)
	}
	if strings.HasPrefix(name, "$") || strings.HasPrefix(name, "__") {
		return fmt.Sprintf("the protocol has no message %s", name)
	}
	return ""
}

func (s *schema) checkMeta(from string, meta any) string {
	if meta == nil {
		return ""
	}
	object, ok := meta.(map[string]any)
	if !ok {
		return "meta must be an object"
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		i := slices.IndexFunc(s.Meta, func(f field) bool { return f.Name == name && (f.From == "both" || f.From == from) })
		if i < 0 {
			return fmt.Sprintf("meta has the unknown member %q", name)
		}
		if problem := s.checkField("meta."+name, object[name], s.Meta[i]); problem != "" {
			return problem
		}
	}
	return ""
}

// fields returns the members of a type. Those of an optional part are all optional.
func (s *schema) fields(name string) (all []field) {
	for _, t := range s.Types {
		if t.Name != name {
			continue
		}
		all = append(all, t.Fields...)
		for _, embedded := range t.Embeds {
			base, optional := strings.CutSuffix(embedded, "?")
			for _, f := range s.fields(base) {
				f.Optional = f.Optional || optional || name == "ResumedTopic" && f.Name != "topic"
				all = append(all, f)
			}
		}
	}
	return all
}

// checkValue checks a value of a type of the schema, such as integer, Member or Limit?[].
func (s *schema) checkValue(path string, value any, typ string) string {
	if element, ok := strings.CutSuffix(typ, "[]"); ok {
		array, ok := value.([]any)
		if !ok {
			return path + " must be an array"
		}
		for i, item := range array {
			if problem := s.checkValue(fmt.Sprintf("%s.%d", path, i), item, element); problem != "" {
				return problem
			}
		}
		return ""
	}
	if element, ok := strings.CutPrefix(typ, "map<"); ok {
		return s.checkMap(path, value, strings.TrimSuffix(element, ">"))
	}
	switch typ = strings.TrimSuffix(typ, "?"); typ {
	case "any", "json":
		return ""
	case "string", "code":
		if _, ok := value.(string); !ok {
			return path + " must be a string"
		}
		return ""
	case "boolean":
		if _, ok := value.(bool); !ok {
			return path + " must be true or false"
		}
		return ""
	case "integer", "int", "offset":
		if n, ok := value.(int64); !ok || n < 0 || n > 1<<53-1 {
			return path + " must be an integer from 0 to 2^53-1"
		}
		return ""
	}
	return s.checkObject(path, value, typ)
}

func (s *schema) checkMap(path string, value any, element string) string {
	object, ok := value.(map[string]any)
	if !ok {
		return path + " must be an object"
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if object[key] == nil && strings.HasSuffix(element, "?") {
			continue
		}
		if problem := s.checkValue(path+"."+key, object[key], element); problem != "" {
			return problem
		}
	}
	return ""
}

func (s *schema) checkObject(path string, value any, typ string) string {
	object, ok := value.(map[string]any)
	if !ok {
		return path + " must be an object"
	}
	fields := s.fields(typ)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.Name == name })
		if i < 0 {
			return fmt.Sprintf("%s has the unknown member %q", path, name)
		}
		if problem := s.checkField(path+"."+name, object[name], fields[i]); problem != "" {
			return problem
		}
	}
	for _, f := range fields {
		if _, ok := object[f.Name]; !ok && !f.Optional {
			return fmt.Sprintf("%s must have the member %q", path, f.Name)
		}
	}
	return ""
}

func (s *schema) checkField(path string, value any, f field) string {
	if problem := s.checkValue(path, value, f.Type); problem != "" {
		return problem
	}
	if n, ok := value.(int64); ok && f.Min != nil && n < *f.Min {
		return fmt.Sprintf("%s must be at least %d", path, *f.Min)
	}
	if text, ok := value.(string); ok && (len(text) < f.MinBytes || f.MaxBytes > 0 && len(text) > f.MaxBytes) {
		return fmt.Sprintf("%s must have %d to %d bytes", path, f.MinBytes, f.MaxBytes)
	}
	return ""
}
