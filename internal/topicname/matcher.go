package topicname

// A Matcher matches a name, or the names that a pattern matches.
type Matcher struct {
	name    string
	pattern Tree[struct{}] // empty if the name is no pattern
}

// NewMatcher returns a Matcher for a name or a pattern.
func NewMatcher(topic string) Matcher {
	m := Matcher{name: topic}
	if p, err := Parse(topic); err == nil {
		m.pattern.Add(p, new(struct{}))
	}
	return m
}

// Matches reports whether a name matches. A pattern matches valid names only.
func (m *Matcher) Matches(name string) bool {
	return m.name == name || m.pattern.Match(name) != nil && BrokenRule(name) == ""
}
