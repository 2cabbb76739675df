package contract

import (
	"strings"
	"unicode"
)

// topics writes the types of what topics carry, and a constant for each topic, or a function that returns one if the pattern has
// wildcards. They return the signature of subscribe, which takes nothing else: Python has no type of texts that match a pattern.
func (p *python) topics(topics []typedTopic) (signatures []pythonSignature) {
	for _, t := range topics {
		base := capitalize(identifier(strings.Join(words(t.parts), "")))
		messages := p.unique(base + "Message")
		var all []string
		for _, m := range t.messages {
			all = append(all, "_penstock.Message[_t.Literal["+literal(m.name)+"], "+m.request+"]")
		}
		b := &p.topicTypes
		b.WriteString("\n\n" + pythonComment("", "What a subscription to "+t.pattern+" receives.") + messages + ": _t.TypeAlias = " +
			pythonText(pythonUnion(append(all, "_penstock.TopicMessage"))) + "\n")
		name, typ := p.unique(strings.TrimPrefix(snakeCase(base)+"_topic", "_")), "_penstock.Topic["+messages+"]"
		if len(t.parameters) == 0 {
			b.WriteString(name + ": _t.Final[" + typ + "] = _penstock.Topic(" + literal(t.pattern) + ")\n")
			continue
		}
		parameters, text := p.topicText(t)
		b.WriteString("\n\ndef " + name + "(" + parameters + ") -> " + typ + ":\n" +
			strings.TrimSuffix(docstring("A topic of "+t.pattern+"."), "\n") + "    return _penstock.Topic(f" + text + ")\n")
	}
	if len(topics) == 0 {
		return nil
	}
	const parameters = "topic: _penstock.Topic[_M], handler: _abc.Callable[[_M], _t.Any] | None = None, *, since: _penstock.Position | None = None, " +
		"state: bool = False, presence: bool = False, last: int = 0, hidden: bool = False, " +
		"on_end: _abc.Callable[[_penstock.PenstockError], None] | None = None) -> _penstock.Subscription[_M]"
	return []pythonSignature{{"", parameters}}
}

// topicText returns the parameters of a function that returns a topic, and the text in which it inserts them.
func (p *python) topicText(t typedTopic) (parameters, text string) {
	var all []string
	text = braces.Replace(t.parts[0])
	for i, name := range t.parameters {
		if pythonKeywords[name] || unicode.IsDigit(rune(name[0])) {
			name = "_" + name
		}
		all = append(all, name+": str")
		text += "{" + name + "}" + braces.Replace(t.parts[i+1])
	}
	return strings.Join(all, ", "), literal(text)
}

// braces escapes those of a text in which Python inserts values.
//
//nolint:gochecknoglobals // never changed
var braces = strings.NewReplacer("{", "{{", "}", "}}")

// pythonText returns a text in quotes, in those that the text does not contain if possible.
func pythonText(text string) string {
	if strings.ContainsAny(text, `'\`) {
		return literal(text)
	}
	return "'" + text + "'"
}

// words returns the words of texts, each with a capital letter.
func words(texts []string) (all []string) {
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return identifier(string(r)) == "" || r == '_' }) {
			all = append(all, capitalize(word))
		}
	}
	return all
}

// snakeCase returns the name of a function for that of a type.
func snakeCase(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
