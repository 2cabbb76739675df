package topic

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Options configure the topics that a pattern matches. The zero value is that of topics which no
// pattern matches.
type Options struct {
	Presence      bool             // every subscriber is present
	PresenceGrace time.Duration    // how long a user stays present without a connection
	Retention     broker.Retention // of publications; nothing is retained if it is zero
	SlowConsumer  wsconn.SlowConsumerPolicy
	MaxPerConn    int // subscriptions of a connection; unlimited if 0
}

// A Pattern is a pattern of topic names with its options.
type Pattern struct {
	Options

	Text     string // "" if it is that of topics which no pattern matches
	Position string // file:line of the registration
	segments topicname.Pattern

	// All subscribers receive the topic and offsets of its messages: a client that is about to
	// resume its session knows then what comes again.
	namesOffsets bool
}

// mustNotConflict panics if some names match two patterns of which neither is more specific.
func (p *Pattern) mustNotConflict(other *Pattern) {
	const form = "router: topic pattern %q, registered at %s, conflicts with pattern %q, registered at %s: "
	switch common := p.segments.CommonName; p.segments.Compare(other.segments) {
	case topicname.Equivalent:
		panic(fmt.Sprintf(form+"both match the same names, such as %q", p.Text, p.Position, other.Text, other.Position, common(other.segments)))
	case topicname.Overlaps:
		panic(fmt.Sprintf(form+"both match %q, and neither is more specific", p.Text, p.Position, other.Text, other.Position, common(other.segments)))
	}
}

// Value returns the part of a name that a wildcard of the pattern matches, or "" if there is no
// such wildcard.
func (p *Pattern) Value(name, wildcard string) string { return p.segments.Value(name, wildcard) }

// HasHistory reports whether the topics have a History.
func (p *Pattern) HasHistory() bool { return p.Retention.Messages > 0 }

// Declare adds a pattern, which is registered at a position in a file. It panics if the pattern
// conflicts with another one.
func (ts *Topics) Declare(text, position string, segments topicname.Pattern, opts Options) *Pattern {
	p := &Pattern{Text: text, Position: position, segments: segments, Options: opts}
	for _, other := range ts.patterns {
		p.mustNotConflict(other)
	}
	ts.patterns = append(ts.patterns, p)
	ts.sendFeed = ts.sendPresence
	if p.HasHistory() {
		ts.start, ts.FollowFromNow = ts.startSequencer, ts.followFromNow
	}
	ts.HasGrace = ts.HasGrace || p.PresenceGrace > 0
	ts.root.Add(p.segments, p)
	return p
}

// DeclareUserLogs makes subscribers receive the logs of users, with their offsets if namesOffsets
// is set.
func (ts *Topics) DeclareUserLogs(r broker.Retention, namesOffsets bool) {
	ts.userLogs = &Pattern{Options: Options{Retention: r}, namesOffsets: namesOffsets}
	ts.start, ts.FollowFromNow = ts.startSequencer, ts.followFromNow
}

// undeclared has the options of topics that no pattern matches.
//
//nolint:gochecknoglobals // never changed
var undeclared = &Pattern{}

// PatternOf returns the pattern that applies to a topic, or undeclared. Patterns do not change
// while the router serves, so it needs no lock.
func (ts *Topics) PatternOf(name string) *Pattern {
	if ts.userLogs != nil && topicname.IsUserLog(name) {
		return ts.userLogs
	}
	if p := ts.root.Match(name); p != nil {
		return p
	}
	return undeclared
}
