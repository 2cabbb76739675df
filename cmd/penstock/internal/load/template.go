package load

import (
	"regexp"
	"strconv"
	"strings"
)

// Placeholders of payloads.
const (
	numberPlaceholder = "{{n}}"    // the number of the message
	connPlaceholder   = "{{conn}}" // the number of the connection, from 0
	markPlaceholder   = "{{mark}}" // the mark of the message: see marks
)

var placeholders = regexp.MustCompile(`\{\{(n|conn|mark)\}\}`)

// Marked reports whether a payload contains the placeholder of the mark.
func Marked(payload string) bool { return strings.Contains(payload, markPlaceholder) }

// Example returns a payload with its placeholders replaced, for checking its syntax.
func Example(payload string) string { return parse(payload).fill(0, 0, "load") }

// A template is a text with placeholders: each odd element is one.
type template []string

func parse(text string) template {
	var t template
	from := 0
	for _, at := range placeholders.FindAllStringIndex(text, -1) {
		t = append(t, text[from:at[0]], text[at[0]:at[1]])
		from = at[1]
	}
	return append(t, text[from:])
}

func (t template) fill(number int64, conn int, mark string) string {
	if len(t) == 1 {
		return t[0]
	}
	var b strings.Builder
	for i, part := range t {
		switch {
		case i%2 == 0:
			b.WriteString(part)
		case part == numberPlaceholder:
			b.WriteString(strconv.FormatInt(number, 10))
		case part == connPlaceholder:
			b.WriteString(strconv.Itoa(conn))
		default:
			b.WriteString(mark)
		}
	}
	return b.String()
}
