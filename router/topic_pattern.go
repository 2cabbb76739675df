package router

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// A topicPattern is a pattern of topic names with its options. The rules are those of the
// patterns of [net/http.ServeMux], without methods, hosts, "{$}", a trailing slash and percent
// encoding.
type topicPattern struct {
	text     string
	position string // file:line of the registration
	segments []patternSegment
	opts     TopicOptions
}

// A patternSegment is the part of a pattern between two slashes.
type patternSegment struct {
	kind segmentKind
	text string // the literal, or the name of the wildcard
}

type segmentKind uint8

const (
	segmentLiteral segmentKind = iota
	segmentOne                 // {name} matches one segment, which is not empty
	segmentRest                // {name...} matches all segments that follow; the last one may be empty
)

// parsePattern returns the segments of a pattern.
func parsePattern(text string) ([]patternSegment, error) {
	if rule := brokenTopicRule(text); rule != "" {
		return nil, errors.New("it " + rule)
	}
	var segments []patternSegment
	for part := range strings.SplitSeq(text, "/") {
		if n := len(segments); n > 0 && segments[n-1].kind == segmentRest {
			return nil, fmt.Errorf("{%s...} must be the last segment", segments[n-1].text)
		}
		s, err := parseSegment(part)
		if err != nil {
			return nil, err
		}
		if s.kind != segmentLiteral && slices.ContainsFunc(segments, func(other patternSegment) bool { return other.names(s.text) }) {
			return nil, fmt.Errorf("the wildcard %q occurs twice", s.text)
		}
		segments = append(segments, s)
	}
	return segments, nil
}

// names reports whether the segment is the wildcard of this name.
func (s patternSegment) names(wildcard string) bool {
	return s.kind != segmentLiteral && s.text == wildcard
}

func parseSegment(part string) (patternSegment, error) {
	if part == "" {
		return patternSegment{}, errors.New("a segment is empty")
	}
	if !strings.Contains(part, "{") {
		return patternSegment{segmentLiteral, part}, nil
	}
	if part[0] != '{' || part[len(part)-1] != '}' {
		return patternSegment{}, fmt.Errorf("the wildcard in %q must be a whole segment, such as {name}", part)
	}
	kind := segmentOne
	name, rest := strings.CutSuffix(part[1:len(part)-1], "...")
	if rest {
		kind = segmentRest
	}
	if !token.IsIdentifier(name) {
		return patternSegment{}, fmt.Errorf("the name of the wildcard %s must be a Go identifier", part)
	}
	return patternSegment{kind, name}, nil
}

// foreignWildcard returns what is wrong with a pattern that has a wildcard in the syntax of another
// library, which would match only itself, or "". [Router.Revoke] takes such texts as names.
func foreignWildcard(segments []patternSegment) string {
	for _, s := range segments {
		name := strings.TrimLeft(s.text, ":")
		switch {
		case s.kind != segmentLiteral:
		case name != s.text && token.IsIdentifier(name):
			return fmt.Sprintf("a wildcard is written {%s}, not %s", name, s.text)
		case strings.Contains(s.text, "*"), s.text == "+", s.text == "#":
			return fmt.Sprintf("%q is no wildcard; write {name} for one segment, or {name...} at the end for all that follow", s.text)
		}
	}
	return ""
}

// A patternNode is a node of the tree of patterns, which has a level for each segment. A pattern
// ends at a node, or, with {name...}, below one.
type patternNode struct {
	literals map[string]*patternNode
	one      *patternNode
	end      *topicPattern
	rest     *topicPattern
}

// add adds a pattern that conflicts with no other one.
func (n *patternNode) add(p *topicPattern) {
	for _, s := range p.segments {
		switch s.kind {
		case segmentRest:
			n.rest = p
			return
		case segmentOne:
			if n.one == nil {
				n.one = &patternNode{}
			}
			n = n.one
		case segmentLiteral:
			if n.literals == nil {
				n.literals = map[string]*patternNode{}
			}
			if n.literals[s.text] == nil {
				n.literals[s.text] = &patternNode{}
			}
			n = n.literals[s.text]
		}
	}
	n.end = p
}

// match returns the most specific pattern that matches a name, whose segments above n have
// matched already, or nil. It visits each node at most once, so a client cannot choose an
// expensive name. As no two patterns conflict, a pattern with a literal is more specific than
// every pattern with a wildcard in the same place that matches the same name.
func (n *patternNode) match(name string) *topicPattern {
	segment, below, more := strings.Cut(name, "/")
	if child := n.literals[segment]; child != nil {
		if p := child.matchBelow(below, more); p != nil {
			return p
		}
	}
	if n.one != nil && segment != "" {
		if p := n.one.matchBelow(below, more); p != nil {
			return p
		}
	}
	return n.rest
}

func (n *patternNode) matchBelow(name string, more bool) *topicPattern {
	if !more {
		return n.end
	}
	return n.match(name)
}

// value returns what a wildcard of the pattern matches in a name, or "" if the pattern has no
// such wildcard.
func (p *topicPattern) value(name, wildcard string) string {
	for _, s := range p.segments {
		segment, below, _ := strings.Cut(name, "/")
		switch {
		case !s.names(wildcard):
			name = below
		case s.kind == segmentRest:
			return name
		default:
			return segment
		}
	}
	return ""
}

// A relation says which names one pattern matches, compared with another one. Its values are
// bits: a relation of whole patterns is the union of the relations of their segments.
type relation uint8

const (
	moreSpecific relation = 1 << iota // it matches only names that the other one matches, too
	moreGeneral                       // it matches all names that the other one matches
	disjoint                          // no name matches both
	equivalent   relation = 0         // both match the same names
	overlaps              = moreSpecific | moreGeneral
)

// compare returns the relation of p to other.
func (p *topicPattern) compare(other *topicPattern) relation {
	rel := equivalent
	for i := range min(len(p.segments), len(other.segments)) {
		a, b := p.segments[i], other.segments[i]
		rel |= a.compare(b)
		if a.kind == segmentRest || b.kind == segmentRest {
			break // one matches all that follows
		}
		if i+1 == min(len(p.segments), len(other.segments)) && len(p.segments) != len(other.segments) {
			return disjoint
		}
	}
	if rel&disjoint != 0 {
		return disjoint
	}
	return rel
}

func (s patternSegment) compare(other patternSegment) relation {
	switch {
	case s.kind == other.kind && (s.kind != segmentLiteral || s.text == other.text):
		return equivalent
	case s.kind == other.kind:
		return disjoint
	case s.kind < other.kind:
		return moreSpecific
	default:
		return moreGeneral
	}
}

// mustNotConflict panics if some names match two patterns of which neither is more specific.
func (p *topicPattern) mustNotConflict(other *topicPattern) {
	const form = "router: topic pattern %q, registered at %s, conflicts with pattern %q, registered at %s: "
	switch p.compare(other) {
	case equivalent:
		panic(fmt.Sprintf(form+"both match the same names, such as %q", p.text, p.position, other.text, other.position, p.commonName(other)))
	case overlaps:
		panic(fmt.Sprintf(form+"both match %q, and neither is more specific", p.text, p.position, other.text, other.position, p.commonName(other)))
	}
}

// commonName returns a name that two patterns match, which must not be disjoint.
func (p *topicPattern) commonName(other *topicPattern) string {
	var name []string
	for i := range max(len(p.segments), len(other.segments)) {
		s := p.segments[min(i, len(p.segments)-1)] // a last {name...} matches all further segments
		if o := other.segments[min(i, len(other.segments)-1)]; o.kind < s.kind {
			s = o
		}
		name = append(name, s.text)
	}
	return strings.Join(name, "/")
}
