package contract

import (
	"fmt"
	"slices"
)

// A Change is a difference between two versions of a contract.
type Change struct {
	// Breaking is set if clients of the earlier version may fail, and not set if they work with a server of the
	// later version as before.
	Breaking bool

	Text string // with the message and the path of the field
}

// Changes returns how a later version of the contract differs, breaking changes first. What clients send must be
// what the later server accepts, and what that sends must be what clients expect: they ignore members that they
// do not know, and values that are new in an enumeration which only the server sends. Limits, titles and
// descriptions do not count.
func (c *Contract) Changes(later *Contract) []Change {
	d := &comparison{old: &c.doc, later: &later.doc}
	d.events("though clients send it", c.doc.Events, later.doc.Events, toServer)
	d.calls("the call", c.doc.Calls, later.doc.Calls, toServer)
	d.calls("the stream", c.doc.Streams, later.doc.Streams, toServer)
	d.events("though clients may wait for it", c.doc.Received, later.doc.Received, toClient)
	d.calls("the call of the server", c.doc.Served, later.doc.Served, toClient)
	d.topics()
	d.codes()
	slices.SortStableFunc(d.changes, func(a, b Change) int {
		switch {
		case a.Breaking == b.Breaking:
			return 0
		case a.Breaking:
			return -1
		}
		return 1
	})
	return d.changes
}

// A direction says who sends what is compared.
type direction bool

const (
	toServer direction = false
	toClient direction = true
)

// A comparison collects changes.
type comparison struct {
	old, later *document
	changes    []Change
}

func (d *comparison) add(breaking bool, format string, args ...any) {
	d.changes = append(d.changes, Change{breaking, fmt.Sprintf(format, args...)})
}

func typeOfEvent(e event) string { return e.Type }
func typeOfCall(c call) string   { return c.Type }

// pair calls both for the elements of two lists that have the same key, and the others for the rest.
func pair[T any](old, later []T, key func(T) string, removed, added func(T), both func(old, later T)) {
	find := func(list []T, name string) int {
		return slices.IndexFunc(list, func(e T) bool { return key(e) == name })
	}
	for _, o := range old {
		if i := find(later, key(o)); i >= 0 {
			both(o, later[i])
		} else {
			removed(o)
		}
	}
	for _, l := range later {
		if find(old, key(l)) < 0 {
			added(l)
		}
	}
}

// events compares messages without an answer.
func (d *comparison) events(why string, old, later []event, dir direction) {
	pair(old, later, typeOfEvent,
		func(e event) { d.add(true, "%s: removed, %s", e.Type, why) },
		func(e event) { d.add(false, "%s: new", e.Type) },
		func(o, l event) { d.event(o, l, dir) })
}

// event compares two versions of a message.
func (d *comparison) event(o, l event, dir direction) {
	d.payload(o.Type, o.Payload, l.Payload, dir)
	if limit := d.maxBytes(d.later, l); dir == toServer && limit > 0 && limit < d.maxBytes(d.old, o) {
		d.add(true, "%s: may have at most %d bytes, %d before", o.Type, limit, d.maxBytes(d.old, o))
	}
	pair(o.Errors, l.Errors, func(f failure) string { return f.Code },
		func(failure) {},
		func(f failure) { d.add(false, "%s: may fail with %s", o.Type, f.Code) },
		func(before, after failure) {
			what := "details of " + after.Code
			d.answer(o.Type, what, before.Details != nil, after.Details != nil, func() { d.payload(what+" of "+o.Type, before.Details, after.Details, !dir) })
		})
}

func (*comparison) maxBytes(doc *document, e event) int64 {
	if e.MaxMessageBytes > 0 {
		return e.MaxMessageBytes
	}
	return doc.MaxMessageBytes
}

// calls compares messages with answers, which go in the other direction.
func (d *comparison) calls(what string, old, later []call, dir direction) {
	pair(old, later, typeOfCall,
		func(c call) { d.add(dir == toServer, "%s: %s is removed", c.Type, what) },
		func(c call) { d.add(dir == toClient, "%s: %s is new%s", c.Type, what, mustAnswer(dir)) },
		func(o, l call) {
			d.event(o.event, l.event, dir)
			d.answer(o.Type, "item", o.Item != nil, l.Item != nil, func() { d.payload("items of "+o.Type, o.Item, l.Item, !dir) })
			d.answer(o.Type, "progress", o.Progress != nil, l.Progress != nil, func() { d.payload("progress of "+o.Type, o.Progress, l.Progress, !dir) })
			d.answer(o.Type, "reply", o.Reply != nil, l.Reply != nil, func() {
				if o.Reply.Type != l.Reply.Type && dir == toClient {
					d.add(true, "%s: clients reply with %s, the server expects %s", o.Type, o.Reply.Type, l.Reply.Type)
				}
				d.payload("reply to "+o.Type, o.Reply.Payload, l.Reply.Payload, !dir)
			})
		})
}

func mustAnswer(dir direction) string {
	if dir == toClient {
		return ", and clients of the earlier version do not answer it"
	}
	return ""
}

// answer compares whether both versions have a kind of answer.
func (d *comparison) answer(typ, kind string, before, after bool, compare func()) {
	switch {
	case before && after:
		compare()
	case before:
		d.add(true, "%s: has no %s any more", typ, kind)
	case after:
		d.add(false, "%s: new %s", typ, kind)
	}
}

// topics compares patterns, and what clients can do with them.
func (d *comparison) topics() {
	pair(d.old.Topics, d.later.Topics, func(t topic) string { return t.Pattern },
		func(t topic) { d.add(true, "topic %s: removed", t.Pattern) },
		func(t topic) { d.add(false, "topic %s: new", t.Pattern) },
		func(o, l topic) {
			for _, ability := range []struct {
				name   string
				before bool
				after  bool
			}{
				{"subscription by clients", o.Subscribe, l.Subscribe},
				{"presence", o.Presence, l.Presence},
				{"hidden subscription", o.Hidden, l.Hidden},
				{"history", o.HistoryMessages > 0, l.HistoryMessages > 0},
			} {
				if ability.before != ability.after {
					d.add(ability.before, "topic %s: %s", o.Pattern, map[bool]string{true: "no " + ability.name + " any more", false: ability.name}[ability.before])
				}
			}
			for _, typ := range l.Messages {
				if !slices.Contains(o.Messages, typ) {
					d.add(false, "topic %s: may have %s", o.Pattern, typ)
				}
			}
		})
}

// codes compares the formats of messages, and the codes of errors.
func (d *comparison) codes() {
	for _, codec := range d.old.Codecs {
		if !slices.Contains(d.later.Codecs, codec) {
			d.add(true, "the format %s is removed", codec)
		}
	}
	for _, code := range d.later.ErrorCodes {
		if !slices.Contains(d.old.ErrorCodes, code) {
			d.add(false, "messages may fail with %s", code)
		}
	}
}
