package contract

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// AsyncAPI returns an AsyncAPI 3.0 document as JSON.
//
// It is written from the server's point of view, as AsyncAPI documents are: the server receives what
// clients send. The channel connection has all messages that do not belong to a topic, and each topic
// pattern is a channel. Payloads describe whole messages, envelope included, so that transmitted
// messages validate. What AsyncAPI has no terms for begins with x-penstock: streams, deadlines, size
// limits, rate limits, histories, error codes and close codes.
func (c *Contract) AsyncAPI() []byte {
	a := asyncAPI{
		doc: &c.doc, messages: object{}, operations: object{}, channel: object{},
		channels: object{}, schemas: map[string]*jsonschema.Schema{}, titles: titles{},
	}
	a.addSchemas()
	a.addConnection()
	a.addTopics()
	root := object{
		"asyncapi":           "3.0.0",
		"info":               a.info(),
		"defaultContentType": "application/json",
		"channels":           a.channels,
		"operations":         a.operations,
		"components": object{
			"messages":      a.messages,
			"schemas":       a.schemas,
			"messageTraits": object{"envelope": envelopeTrait()},
		},
		"x-penstock-error-codes": c.doc.ErrorCodes,
		"x-penstock-close-codes": c.doc.CloseCodes,
	}
	if server := a.server(); server != nil {
		root["servers"] = object{"default": server}
	}
	if len(c.doc.Limits) > 0 {
		root["x-penstock-limits"] = c.doc.Limits
	}
	return encode(rewriteRefs(root))
}

// An object is a JSON object of an AsyncAPI document.
type object = map[string]any

type asyncAPI struct {
	doc        *document
	messages   object // of components
	operations object
	channels   object
	channel    object                        // messages of the channel connection
	schemas    map[string]*jsonschema.Schema // of components
	titles     titles
	meta       map[bool]string // names of the schemas of meta: of calls, and of other messages
	failed     string          // name of the schema of the payload of errors
}

// connectionChannel is the name of the channel for everything but topics.
const connectionChannel = "connection"

func (a *asyncAPI) info() object {
	info := object{"title": a.doc.title(), "version": cmp.Or(a.doc.Version, "0.0.0")}
	if a.doc.Description != "" {
		info["description"] = a.doc.Description
	}
	return info
}

// server returns the server of Options.URL, or nil.
func (a *asyncAPI) server() object {
	u, err := url.Parse(a.doc.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	protocol := map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	return object{"host": u.Host, "protocol": cmp.Or(protocol, u.Scheme)}
}

// address returns the path of the router, or nil if it is not known.
func (a *asyncAPI) address() any {
	u, err := url.Parse(a.doc.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	return cmp.Or(u.EscapedPath(), "/")
}

func (a *asyncAPI) addConnection() {
	for _, e := range a.doc.Events {
		a.operation("receive", "event", e, a.add(connectionChannel, a.channel, a.doc.frame("event", e, false)), nil)
	}
	for _, c := range a.doc.Calls {
		a.call(c, nil)
	}
	for _, c := range a.doc.Streams {
		a.call(c, object{"x-penstock-stream": true})
	}
	for _, e := range a.doc.Received {
		a.operation("send", "message", e, a.add(connectionChannel, a.channel, a.doc.frame("message", e, false)), nil)
	}
	for _, c := range a.doc.Served {
		request := a.add(connectionChannel, a.channel, a.doc.frame("served", c.event, true))
		reply := []frame{a.doc.frame("answer", *c.Reply, true), a.doc.rpcError("answer")}
		a.operation("send", "served", c.event, request, object{"reply": a.reply(reply)})
	}
	failed := event{Type: protocol.TypeError, Description: "Answers a message that is rejected or fails and is no call.", Payload: a.doc.errorPayload()}
	a.operation("send", "message", failed, a.add(connectionChannel, a.channel, a.doc.frame("message", failed, false)), nil)
	a.channels[connectionChannel] = object{
		"address":  a.address(),
		"messages": a.channel,
		"bindings": object{"ws": object{"bindingVersion": "0.1.0", "method": "GET", "query": object{
			"type":       "object",
			"properties": object{"access_token": object{"type": "string", "description": "The token, for clients that cannot set the header Authorization."}},
		}}},
		"x-penstock-codecs":            a.doc.Codecs,
		"x-penstock-max-message-bytes": a.doc.MaxMessageBytes,
	}
}

// call adds a call or a stream of clients.
func (a *asyncAPI) call(c call, more object) {
	if more == nil {
		more = object{}
	}
	more["reply"] = a.reply(a.doc.answers(c))
	if c.TimeoutMs > 0 {
		more["x-penstock-timeout-ms"] = c.TimeoutMs
	}
	a.operation("receive", "call", c.event, a.add(connectionChannel, a.channel, a.doc.request(c)), more)
}

// reply returns the answers to an operation.
func (a *asyncAPI) reply(frames []frame) object {
	messages := []object{}
	for _, f := range frames {
		messages = append(messages, a.add(connectionChannel, a.channel, f))
	}
	return object{"channel": refTo("channels", connectionChannel), "messages": messages}
}

// operation adds an operation with one message.
func (a *asyncAPI) operation(action, role string, e event, message object, more object) {
	op := object{"action": action, "channel": refTo("channels", connectionChannel), "messages": []object{message}}
	if e.Description != "" {
		op["description"] = e.Description
	}
	if e.MaxMessageBytes > 0 {
		op["x-penstock-max-message-bytes"] = e.MaxMessageBytes
	}
	if len(e.Errors) > 0 {
		op["x-penstock-errors"] = e.Errors
	}
	maps.Copy(op, more)
	a.operations[keyOf(role, e.Type)] = op
}

// add adds a message to the components and to a channel, and returns the reference to the latter.
func (a *asyncAPI) add(channel string, messages object, f frame) object {
	if a.messages[f.key] != nil { // a type may occur in several channels
		messages[f.key] = refTo("components", "messages", f.key)
		return refTo("channels", channel, "messages", f.key)
	}
	message := object{
		"name":    f.typ,
		"title":   f.typ,
		"payload": a.payload(f),
		"traits":  []object{refTo("components", "messageTraits", "envelope")},
	}
	if f.text != "" {
		message["description"] = f.text
	}
	a.messages[f.key] = message
	messages[f.key] = refTo("components", "messages", f.key)
	return refTo("channels", channel, "messages", f.key)
}

var wildcard = regexp.MustCompile(`\{(\w+)(?:\.\.\.)?\}`)

func (a *asyncAPI) addTopics() {
	for _, t := range a.doc.Topics {
		key := keyOf("topic", t.Pattern)
		messages, refs := object{}, []object{}
		for _, e := range a.doc.messagesOf(t) {
			refs = append(refs, a.add(key, messages, a.doc.frame("message", e, false)))
		}
		parameters := object{}
		for _, name := range wildcard.FindAllStringSubmatch(t.Pattern, -1) {
			parameters[name[1]] = object{}
		}
		channel := object{
			"address":              wildcard.ReplaceAllString(t.Pattern, "{$1}"),
			"title":                t.Pattern,
			"messages":             messages,
			"x-penstock-subscribe": t.Subscribe,
			"x-penstock-presence":  t.Presence,
		}
		if t.Hidden {
			channel["x-penstock-hidden"] = true
		}
		if len(parameters) > 0 {
			channel["parameters"] = parameters
		}
		if t.HistoryMessages > 0 {
			channel["x-penstock-history"] = object{"messages": t.HistoryMessages, "ms": t.HistoryMs}
		}
		a.channels[key] = channel
		if len(refs) > 0 {
			a.operations[key] = object{"action": "send", "channel": refTo("channels", key), "messages": refs}
		}
	}
}

// messagesOf returns the messages that are published to a topic: all that clients may receive if the
// topic does not declare any.
func (doc *document) messagesOf(t topic) (messages []event) {
	for _, e := range doc.Received {
		declared := len(t.Messages) == 0
		for _, typ := range t.Messages {
			declared = declared || typ == e.Type
		}
		if declared {
			messages = append(messages, e)
		}
	}
	return messages
}

// addSchemas adds the definitions, and what all envelopes have in common.
func (a *asyncAPI) addSchemas() {
	names := slices.Sorted(maps.Keys(a.doc.Defs))
	for _, name := range names {
		a.titles[name] = true
	}
	for _, name := range names {
		def := a.doc.Defs[name].CloneSchemas()
		def.Title = name
		openEnums(def)
		a.addDiscriminators(def)
		a.titles.name(def, name)
		a.schemas[name] = def
	}
	a.meta = map[bool]string{false: a.addShared("Meta", meta(false)), true: a.addShared("CallMeta", meta(true))}
	a.failed = a.addShared("ErrorPayload", a.doc.errorPayload())
}

// addShared adds a schema that is no type of the application, and returns its name.
func (a *asyncAPI) addShared(name string, s *jsonschema.Schema) string {
	s.Title = a.titles.unique(name)
	a.schemas[s.Title] = s
	return s.Title
}

// payload returns the schema of a message. Its type is different from that of any other.
func (a *asyncAPI) payload(f frame) *jsonschema.Schema {
	role, _, _ := strings.Cut(f.key, ".")
	s := f.schema.CloneSchemas()
	s.Title = a.titles.unique(pascal(f.typ) + capitalize(role))
	if role == "progress" { // its type is the same for all calls
		_, of, _ := strings.Cut(f.key, ".")
		s.Title = a.titles.unique(pascal(of) + "Progress")
	}
	s.Extra = map[string]any{"discriminator": "type"}
	s.Properties["meta"] = &jsonschema.Schema{Ref: refPrefix + a.meta[slices.Contains(s.Required, "meta")]}
	if f.typ == protocol.TypeError || f.typ == protocol.TypeRPCError {
		s.Properties["payload"] = &jsonschema.Schema{Ref: refPrefix + a.failed}
	}
	a.addDiscriminators(s)
	openEnums(s)
	a.titles.name(s, s.Title)
	return s
}

// addDiscriminators names the member by which the variants of interfaces differ.
func (a *asyncAPI) addDiscriminators(s *jsonschema.Schema) {
	if name := a.doc.discriminator(s); name != "" {
		s.Extra = map[string]any{"discriminator": name}
	}
	for child := range children(s) {
		a.addDiscriminators(child)
	}
}

// envelopeTrait is what all messages have in common.
func envelopeTrait() object {
	return object{
		"contentType": "application/json",
		"correlationId": object{
			"description": "Calls and their answers have the same ID.",
			"location":    "$message.payload#/meta/correlationId",
		},
	}
}

// refTo returns a reference inside the document.
func refTo(path ...string) object {
	for i, name := range path {
		path[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return object{"$ref": "#/" + strings.Join(path, "/")}
}

// rewriteRefs returns the JSON value of v, in which references to definitions are those of AsyncAPI.
func rewriteRefs(v any) any {
	var value any
	if err := jsonv2.Unmarshal(encode(v), &value); err != nil {
		panic("contract: " + err.Error()) // encode has just encoded it
	}
	var rewrite func(v any)
	rewrite = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, element := range v {
				rewrite(element)
			}
		case object:
			if ref, ok := v["$ref"].(string); ok {
				if name, ok := strings.CutPrefix(ref, refPrefix); ok {
					v["$ref"] = "#/components/schemas/" + name
				}
			}
			for _, member := range v {
				rewrite(member)
			}
		}
	}
	rewrite(value)
	return value
}
