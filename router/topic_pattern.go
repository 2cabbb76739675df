package router

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/topicname"
)

// A topicPattern is a pattern of topic names with its options.
type topicPattern struct {
	text     string
	position string // file:line of the registration
	segments topicname.Pattern
	opts     TopicOptions
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
