package contract

import (
	"maps"
	"slices"
	"strings"
)

// topics writes a member for each pattern. A name that several patterns match has those of the most specific
// one: TypeScript requires that the messages of the other patterns include them.
func (t *typeScript) topics(topics []typedTopic) {
	t.members("topics", "Topics by name, with the messages that are published to them.", len(topics), func() {
		for _, general := range topics {
			names := map[string]bool{}
			for _, each := range topics {
				if each.pattern == general.pattern || covers(general.pattern, each.pattern) {
					for _, m := range each.messages {
						names[m.name] = true
					}
				}
			}
			name := propertyName(general.pattern)
			if len(general.parameters) > 0 {
				name = "[topic: `" + templateOf(general.pattern) + "`]"
			}
			t.line("    " + name + ": { messages: " + union(quoteAll(slices.Sorted(maps.Keys(names)))) + " };")
		}
	})
}

// templateOf returns the inside of a template literal type that accepts the names of a pattern.
func templateOf(pattern string) string {
	escaped := strings.NewReplacer("\\", "\\\\", "`", "\\`", "$", "\\$").Replace(pattern)
	return wildcard.ReplaceAllLiteralString(escaped, "${string}")
}

// covers reports whether the template of a pattern accepts every name of another pattern. A wildcard of
// TypeScript also accepts slashes.
func covers(general, special string) bool {
	parts := wildcard.Split(general, -1)
	if len(parts) == 1 {
		return false
	}
	name := wildcard.ReplaceAllLiteralString(special, "\x00")
	name, found := strings.CutPrefix(name, parts[0])
	if !found {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, parts[last])
}
