package contract

import (
	"cmp"
	"slices"
	"strings"
)

// typedMessages is a document with the types of one language, for the interface or class by which its client is typed.
type typedMessages struct {
	events, calls, streams []message // from clients
	received, served       []message // from the server: without an answer, and with one
	topics                 []typedTopic
}

// A message is a message type with the types of its payloads.
type message struct {
	name, description string
	request           string
	optional          bool   // clients may leave the request out
	reply             string // "" if there is none
	replyName         string // the type of the message that is the reply
	progress          string // "" if there is none
	item              string // of a stream
	failures          []typedFailure
}

type typedFailure struct {
	code    string
	details string // "" if they are not declared
}

// A typedTopic is a pattern of topics with the messages that are published to them.
type typedTopic struct {
	pattern    string
	parts      []string // the texts before, between and behind the wildcards
	parameters []string // the names of the wildcards
	messages   []message
}

// typed returns the messages with the types that a printer writes.
func (doc *document) typed(p printer) (all typedMessages) {
	for _, e := range doc.Events {
		all.events = append(all.events, doc.message(p, call{event: e}, "Request"))
	}
	for _, c := range doc.Calls {
		all.calls = append(all.calls, doc.message(p, c, "Request"))
	}
	for _, c := range doc.Streams {
		m := doc.message(p, c, "Request")
		m.item = cmp.Or(m.item, p.basic(anything))
		all.streams = append(all.streams, m)
	}
	for _, c := range doc.Served {
		all.served = append(all.served, doc.message(p, c, "Request"))
	}
	for _, e := range doc.Received {
		all.received = append(all.received, doc.message(p, call{event: e}, "Payload"))
	}
	for _, t := range doc.Topics {
		one := typedTopic{pattern: t.Pattern, parts: wildcard.Split(t.Pattern, -1)}
		for _, name := range wildcard.FindAllStringSubmatch(t.Pattern, -1) {
			one.parameters = append(one.parameters, name[1])
		}
		for _, e := range doc.messagesOf(t) {
			i := slices.IndexFunc(all.received, func(m message) bool { return m.name == e.Type })
			one.messages = append(one.messages, all.received[i])
		}
		all.topics = append(all.topics, one)
	}
	return all
}

// message returns a message whose payload is called after it if its schema has no name.
func (doc *document) message(p printer, c call, suffix string) message {
	at := func(name string) spot { return spot{name: name, indent: "    "} }
	m := message{name: c.Type, description: c.Description, request: typeOf(p, c.Payload, at(c.Type+suffix)), optional: doc.isOptional(c)}
	if c.Progress != nil {
		m.progress = typeOf(p, c.Progress, at(c.Type+"Progress"))
	}
	if c.Item != nil {
		m.item = typeOf(p, c.Item, at(c.Type+"Item"))
	}
	if c.Reply != nil {
		m.replyName, m.reply = c.Reply.Type, typeOf(p, c.Reply.Payload, at(c.Reply.Type))
	}
	for _, f := range c.Errors {
		one := typedFailure{code: f.Code}
		if f.Details != nil {
			one.details = typeOf(p, f.Details, at(c.Type+"Details"))
		}
		m.failures = append(m.failures, one)
	}
	return m
}

// isOptional reports whether a payload has no member that is required.
func (doc *document) isOptional(c call) bool {
	s := doc.resolve(c.Payload)
	return len(s.Required) == 0 && s.Type == "object"
}

// documentation returns the description of a message and the codes with which it fails.
func (m message) documentation() string {
	if len(m.failures) == 0 {
		return m.description
	}
	var codes []string
	for _, f := range m.failures {
		codes = append(codes, f.code)
	}
	return strings.TrimSpace(m.description + "\n\nFails with " + strings.Join(codes, ", ") + ".")
}
