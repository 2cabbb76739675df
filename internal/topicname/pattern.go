// Package topicname has the rules for names of topics, and patterns that match them.
package topicname

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// A Pattern matches names. The rules are those of the patterns of [net/http.ServeMux], without
// methods, hosts, "{$}", a trailing slash and percent encoding.
type Pattern []segment

// A segment is the part of a pattern between two slashes.
type segment struct {
	kind segmentKind
	text string // the literal, or the name of the wildcard
}

type segmentKind uint8

const (
	segmentLiteral segmentKind = iota
	segmentOne                 // {name} matches one segment, which is not empty
	segmentRest                // {name...} matches all segments that follow; the last one may be empty
)

// Parse returns a pattern.
func Parse(text string) (Pattern, error) {
	if rule := BrokenRule(text); rule != "" {
		return nil, errors.New("it " + rule)
	}
	var segments Pattern
	for part := range strings.SplitSeq(text, "/") {
		if n := len(segments); n > 0 && segments[n-1].kind == segmentRest {
			return nil, fmt.Errorf("{%s...} must be the last segment", segments[n-1].text)
		}
		s, err := parseSegment(part)
		if err != nil {
			return nil, err
		}
		if s.kind != segmentLiteral && slices.ContainsFunc(segments, func(other segment) bool { return other.names(s.text) }) {
			return nil, fmt.Errorf("the wildcard %q occurs twice", s.text)
		}
		segments = append(segments, s)
	}
	return segments, nil
}

// names reports whether the segment is the wildcard of this name.
func (s segment) names(wildcard string) bool {
	return s.kind != segmentLiteral && s.text == wildcard
}

func parseSegment(part string) (segment, error) {
	if part == "" {
		return segment{}, errors.New("a segment is empty")
	}
	if !strings.Contains(part, "{") {
		return segment{segmentLiteral, part}, nil
	}
	if part[0] != '{' || part[len(part)-1] != '}' {
		return segment{}, fmt.Errorf("the wildcard in %q must be a whole segment, such as {name}", part)
	}
	kind := segmentOne
	name, rest := strings.CutSuffix(part[1:len(part)-1], "...")
	if rest {
		kind = segmentRest
	}
	if !token.IsIdentifier(name) {
		return segment{}, fmt.Errorf("the name of the wildcard %s must be a Go identifier", part)
	}
	return segment{kind, name}, nil
}

// ForeignWildcard returns what is wrong with a pattern that has a wildcard in the syntax of another
// library, which would match only itself, or "".
func (p Pattern) ForeignWildcard() string {
	for _, s := range p {
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

// A Tree finds the value of the pattern that matches a name. It has a level for each segment: a
// pattern ends at a node, or, with {name...}, below one. The zero Tree is empty.
type Tree[V any] struct {
	literals map[string]*Tree[V]
	one      *Tree[V]
	end      *V
	rest     *V
}

// Add adds a pattern that conflicts with no other one.
func (n *Tree[V]) Add(p Pattern, v *V) {
	for _, s := range p {
		switch s.kind {
		case segmentRest:
			n.rest = v
			return
		case segmentOne:
			if n.one == nil {
				n.one = &Tree[V]{}
			}
			n = n.one
		case segmentLiteral:
			if n.literals == nil {
				n.literals = map[string]*Tree[V]{}
			}
			if n.literals[s.text] == nil {
				n.literals[s.text] = &Tree[V]{}
			}
			n = n.literals[s.text]
		}
	}
	n.end = v
}

// Match returns the value of the most specific pattern that matches a name, whose segments above n
// have matched already, or nil. It visits each node at most once, so a client cannot choose an
// expensive name. As no two patterns conflict, a pattern with a literal is more specific than
// every pattern with a wildcard in the same place that matches the same name.
func (n *Tree[V]) Match(name string) *V {
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

func (n *Tree[V]) matchBelow(name string, more bool) *V {
	if !more {
		return n.end
	}
	return n.Match(name)
}

// Value returns what a wildcard of the pattern matches in a name, or "" if the pattern has no
// such wildcard.
func (p Pattern) Value(name, wildcard string) string {
	for _, s := range p {
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

// A Relation says which names one pattern matches, compared with another one. Its values are
// bits: a relation of whole patterns is the union of the relations of their segments.
type Relation uint8

// The relations.
const (
	moreSpecific Relation = 1 << iota                  // it matches only names that the other one matches, too
	moreGeneral                                        // it matches all names that the other one matches
	disjoint                                           // no name matches both
	Equivalent   Relation = 0                          // both match the same names
	Overlaps              = moreSpecific | moreGeneral // both match some names, and each some others
)

// Compare returns the relation of p to other.
func (p Pattern) Compare(other Pattern) Relation {
	rel := Equivalent
	for i := range min(len(p), len(other)) {
		a, b := p[i], other[i]
		rel |= a.compare(b)
		if a.kind == segmentRest || b.kind == segmentRest {
			break // one matches all that follows
		}
		if i+1 == min(len(p), len(other)) && len(p) != len(other) {
			return disjoint
		}
	}
	if rel&disjoint != 0 {
		return disjoint
	}
	return rel
}

func (s segment) compare(other segment) Relation {
	switch {
	case s.kind == other.kind && (s.kind != segmentLiteral || s.text == other.text):
		return Equivalent
	case s.kind == other.kind:
		return disjoint
	case s.kind < other.kind:
		return moreSpecific
	default:
		return moreGeneral
	}
}

// CommonName returns a name that two patterns match, which must not be disjoint.
func (p Pattern) CommonName(other Pattern) string {
	var name []string
	for i := range max(len(p), len(other)) {
		s := p[min(i, len(p)-1)] // a last {name...} matches all further segments
		if o := other[min(i, len(other)-1)]; o.kind < s.kind {
			s = o
		}
		name = append(name, s.text)
	}
	return strings.Join(name, "/")
}
