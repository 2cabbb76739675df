package contract

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router/description"
)

// A Contract is what a router and its clients agree on. Create one with [New] or [Parse]. Its methods
// may be called concurrently, and always return the same bytes.
type Contract struct {
	doc document
}

// Options configure a contract. The zero value is a working configuration.
type Options struct {
	Title       string // of the AsyncAPI document; if empty, "WebSocket API"
	Version     string // of the application; if empty, "0.0.0"
	Description string // may be empty

	// URL is the address of the router, such as wss://example.com/ws. If empty, the AsyncAPI document
	// has no server.
	URL string

	// Schemas has the JSON Schema of types of other modules that encode themselves, such as a decimal
	// number with a method MarshalJSON. It takes precedence over methods of the type.
	Schemas map[reflect.Type]string

	// Variants lists the types whose values an interface type may have. Only messages of the server may
	// contain interfaces other than any: clients could not say which type they mean.
	Variants map[reflect.Type][]reflect.Type

	// Comments returns the comments in the source of a package, by the name of a type, such as "JoinRoom", or of
	// a field: "JoinRoom.Room". They describe what has no description by a method or tag. If nil, there are no
	// comments: a running program does not have its source. contracttest.Check reads it.
	Comments func(pkgPath string) map[string]string
}

// New returns the contract of a router; see [router.Router.Describe]. If opts is nil, the zero Options
// apply.
//
// It returns an error that lists every type without a defined JSON form, with the message and the path
// of the field, and what to write instead: a [time.Duration]; an int64 or uint64 without the option
// string or the tag contract:"safe"; a type that encodes itself and has no schema; an interface without
// variants; a channel, function or complex number.
func New(d description.Contract, opts *Options) (*Contract, error) {
	if opts == nil {
		opts = &Options{}
	}
	w := newWalker(opts)
	doc := document{
		Penstock: documentVersion, Title: opts.Title, Version: opts.Version, Description: opts.Description, URL: opts.URL,
		Events: []event{}, Calls: []call{}, Streams: []call{}, Received: []event{}, Served: []call{}, Topics: []topic{},
		Codecs: d.Codecs, MaxMessageBytes: d.MaxBytes[""],
	}
	doc.addSent(d, w) // first, because what clients send has more rules
	w.sent = false
	doc.addReceived(d, w)
	defs, names, err := w.finish()
	if err != nil {
		return nil, err
	}
	doc.Defs = defs
	for schema, typ := range w.refs {
		schema.Ref = refPrefix + names[typ]
	}
	doc.addTopics(d.Topics)
	doc.addLimits(d.Limits)
	doc.addCodes(d)
	if err := doc.check(); err != nil {
		return nil, fmt.Errorf("contract: %w", err)
	}
	return &Contract{doc}, nil
}

// Parse returns the contract that [Contract.Document] has encoded. The error says whether the document
// is incomplete, or something else.
func Parse(text []byte) (*Contract, error) {
	var doc document
	if err := jsonv2.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("contract: the document cannot be decoded: %w", err)
	}
	if doc.Penstock == 0 {
		return nil, errors.New(`contract: the document is not a contract: it has no member "penstock"`)
	}
	if doc.Penstock != documentVersion {
		return nil, fmt.Errorf("contract: the document has version %d; this program reads version %d", doc.Penstock, documentVersion)
	}
	if err := doc.check(); err != nil {
		return nil, fmt.Errorf("contract: the document is incomplete: %w", err)
	}
	return &Contract{doc}, nil
}

// Document returns the whole contract as JSON, for [Parse].
func (c *Contract) Document() []byte { return encode(c.doc) }

// encode returns JSON of a value that is known to be valid, with a newline at the end.
func encode(v any) []byte {
	text, err := jsonv2.Marshal(v, jsonv2.Deterministic(true), jsonv2.WithIndent("  "))
	if err != nil {
		panic(fmt.Sprintf("contract: %v", err)) // check has accepted it
	}
	return append(text, '\n')
}

// addSent adds what clients send: the messages of routes, and the replies to calls of the server.
func (doc *document) addSent(d description.Contract, w *walker) {
	for _, rt := range d.Routes {
		e := event{Type: rt.Type, Description: rt.Description, Payload: w.root(rt.Type, rt.Go), MaxMessageBytes: d.MaxBytes[rt.Type]}
		switch rt.Kind {
		case description.KindEvent:
			doc.Events = append(doc.Events, e)
		case description.KindCall:
			doc.Calls = append(doc.Calls, call{event: e, TimeoutMs: rt.Timeout.Milliseconds()})
		case description.KindStream:
			doc.Streams = append(doc.Streams, call{event: e, TimeoutMs: rt.Timeout.Milliseconds()})
		}
	}
	for _, c := range d.Calls {
		reply := &event{Type: c.Reply.Type, Payload: w.root(c.Reply.Type, c.Reply.Go)}
		doc.Served = append(doc.Served, call{event: event{Type: c.Type}, Reply: reply})
	}
}

// addReceived adds what clients receive. It must be called after addSent.
func (doc *document) addReceived(d description.Contract, w *walker) {
	events, calls, streams := 0, 0, 0
	for _, rt := range d.Routes {
		var c *call
		switch rt.Kind {
		case description.KindCall:
			c, calls = &doc.Calls[calls], calls+1
		case description.KindStream:
			c, streams = &doc.Streams[streams], streams+1
		default:
			doc.Events[events].Errors = w.failures(rt)
			events++
			continue
		}
		c.Errors = w.failures(rt)
		if rt.Reply.Go != nil {
			c.Reply = &event{Type: rt.Reply.Type, Payload: w.root(rt.Reply.Type, rt.Reply.Go)}
		}
		if rt.Item != nil {
			c.Item = w.root("items of "+rt.Type, rt.Item)
		}
		if rt.Progress != nil {
			c.Progress = w.root("progress of "+rt.Type, rt.Progress)
		}
	}
	for _, m := range d.Sent {
		doc.Received = append(doc.Received, event{Type: m.Type, Payload: w.root(m.Type, m.Go)})
	}
	for i, c := range d.Calls {
		doc.Served[i].Payload = w.root(c.Type, c.Go)
	}
}

// failures returns the errors that a route declares.
func (w *walker) failures(rt description.Route) (all []failure) {
	for _, e := range rt.Errors {
		f := failure{Code: string(e.Code)}
		if e.Details != nil {
			f.Details = w.root("details of "+f.Code+" of "+rt.Type, e.Details)
		}
		all = append(all, f)
	}
	return all
}

func (doc *document) addTopics(topics []description.Topic) {
	for _, t := range topics {
		doc.Topics = append(doc.Topics, topic{
			Pattern: t.Pattern, Messages: t.Messages, Subscribe: t.Subscribe, Presence: t.Presence, Hidden: t.Hidden,
			HistoryMessages: t.History.Messages, HistoryMs: t.History.Age.Milliseconds(),
		})
	}
}

// addLimits adds the limits by name. A name that several limits have says too little, so these are left
// out.
func (doc *document) addLimits(limits []description.Limit) {
	for i, l := range limits {
		same := func(other description.Limit) bool { return other.Name == l.Name }
		if slices.ContainsFunc(limits[:i], same) || slices.ContainsFunc(limits[i+1:], same) {
			continue
		}
		added := limit{Capacity: l.Capacity, Refill: l.Refill, RefillMs: l.Per.Milliseconds(), Scope: l.Scope}
		for _, b := range l.Buckets {
			costs := map[string]*int64{}
			for typ, cost := range b.Costs {
				costs[typ] = nil
				if cost >= 0 {
					costs[typ] = &cost
				}
			}
			added.Buckets = append(added.Buckets, bucket{Costs: costs, Keep: maps.Clone(b.Keep)})
		}
		if doc.Limits == nil {
			doc.Limits = map[string]limit{}
		}
		doc.Limits[l.Name] = added
	}
}

// addCodes adds the codes of errors, those that routes declare included, and of closed connections.
func (doc *document) addCodes(d description.Contract) {
	codes := map[string]bool{}
	for _, code := range d.Errors {
		codes[string(code)] = true
	}
	for _, rt := range d.Routes {
		for _, e := range rt.Errors {
			codes[string(e.Code)] = true
		}
	}
	doc.ErrorCodes = slices.Sorted(maps.Keys(codes))
	for _, c := range d.CloseCodes {
		doc.CloseCodes = append(doc.CloseCodes, closeCode{c.Code, c.Reason})
	}
}

// isEmpty reports whether a payload has nothing in it, so that messages need none.
func (doc *document) isEmpty(payload *jsonschema.Schema) bool {
	s := doc.resolve(payload)
	return s != nil && s.Type == "object" && len(s.Properties) == 0 && s.AdditionalProperties == nil && s.Extra[closedKeyword] != nil
}
