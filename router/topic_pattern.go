package router

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// patternOptions configure the topics that a pattern matches. The zero value is that of topics which no pattern
// matches.
type patternOptions struct {
	Presence      bool             // every subscriber is present
	PresenceGrace time.Duration    // how long a user stays present without a connection
	Retention     broker.Retention // of publications; nothing is retained if it is zero
	SlowConsumer  wsconn.SlowConsumerPolicy
	MaxPerConn    int // subscriptions of a connection; unlimited if 0
}

// A topicPattern is a pattern of topic names with its options.
type topicPattern struct {
	patternOptions

	text     string // "" if it is that of topics which no pattern matches
	position string // file:line of the registration
	segments topicname.Pattern

	// All subscribers are told the topic and offsets of its messages: a client that is about to resume its
	// session knows then what comes again.
	namesOffsets bool
}

// mustNotConflict panics if some names match two patterns of which neither is more specific.
func (p *topicPattern) mustNotConflict(other *topicPattern) {
	const form = "router: topic pattern %q, registered at %s, conflicts with pattern %q, registered at %s: "
	switch common := p.segments.CommonName; p.segments.Compare(other.segments) {
	case topicname.Equivalent:
		panic(fmt.Sprintf(form+"both match the same names, such as %q", p.text, p.position, other.text, other.position, common(other.segments)))
	case topicname.Overlaps:
		panic(fmt.Sprintf(form+"both match %q, and neither is more specific", p.text, p.position, other.text, other.position, common(other.segments)))
	}
}

// value returns the part of a name that a wildcard of the pattern matches, or "" if there is no such wildcard.
func (p *topicPattern) value(name, wildcard string) string { return p.segments.Value(name, wildcard) }

// hasHistory reports whether the topics have a History.
func (p *topicPattern) hasHistory() bool { return p.Retention.Messages > 0 }

// declare adds a pattern, which is registered at a position in a file. It panics if the pattern conflicts with
// another one.
func (ts *topics) declare(text, position string, segments topicname.Pattern, opts patternOptions) *topicPattern {
	p := &topicPattern{text: text, position: position, segments: segments, patternOptions: opts}
	for _, other := range ts.patterns {
		p.mustNotConflict(other)
	}
	ts.patterns = append(ts.patterns, p)
	ts.hasHistory = ts.hasHistory || p.hasHistory()
	ts.maxGrace = max(ts.maxGrace, p.PresenceGrace)
	ts.root.Add(p.segments, p)
	return p
}

// declareUserLogs makes subscribers receive the logs of users, with their offsets if namesOffsets is set.
func (ts *topics) declareUserLogs(r broker.Retention, namesOffsets bool) {
	ts.userLogs = &topicPattern{patternOptions: patternOptions{Retention: r}, namesOffsets: namesOffsets}
}

// undeclared has the options of topics that no pattern matches.
//
//nolint:gochecknoglobals // never changed
var undeclared = &topicPattern{}

// patternOf returns the pattern that applies to a topic, or undeclared. Patterns do not change
// while the router serves, so it needs no lock.
func (ts *topics) patternOf(name string) *topicPattern {
	if ts.userLogs != nil && topicname.IsUserLog(name) {
		return ts.userLogs
	}
	if p := ts.root.Match(name); p != nil {
		return p
	}
	return undeclared
}
