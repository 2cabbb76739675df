package conformance

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed scenarios/*.txt
var files embed.FS

// Levels returns the levels of scenarios, in the order in which a client is written.
func Levels() []string {
	return []string{"minimal", "calls", "streams", "topics", "recovery", "sessions", "pacing"}
}

// A Scenario is a situation, and what a client does in it.
type Scenario struct {
	Number int
	Name   string
	Level  string
	steps  []step
}

// A step is a line of a scenario, and the lines that it repeats or makes optional.
type step struct {
	place string // file and line
	text  string
	block []step
}

var title = regexp.MustCompile(`^scenario (\d+) ([a-z]+): (.+)$`)

// groups returns the files of scenarios, in the order of docs/client-scenarios.md.
func groups() []string {
	return []string{"connecting", "close-codes", "calls", "served", "streams", "topics", "recovery", "queue", "pacing", "sessions", "closing"}
}

// Scenarios returns all scenarios. It panics if a file is invalid.
func Scenarios() []*Scenario {
	var all []*Scenario
	for _, group := range groups() {
		name := group + ".txt"
		text, err := files.ReadFile("scenarios/" + name)
		if err == nil {
			var found []*Scenario
			found, err = parse(name, string(text))
			all = append(all, found...)
		}
		if err != nil {
			panic(err)
		}
	}
	return all
}

// parse reads the scenarios of a file.
func parse(name, text string) (all []*Scenario, err error) {
	var blocks []*[]step // the innermost one last
	number, known := 0, verbs()
	for line := range strings.Lines(text) {
		number++
		place := fmt.Sprintf("%s:%d", name, number)
		line = strings.TrimSpace(line)
		verb, _, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case verb == "scenario":
			match := title.FindStringSubmatch(line)
			if match == nil || !slices.Contains(Levels(), match[2]) {
				return nil, fmt.Errorf("%s: a title is `scenario 1 minimal: what happens`, with a level of %s", place, strings.Join(Levels(), ", "))
			}
			s := &Scenario{Name: match[3], Level: match[2]}
			s.Number, _ = strconv.Atoi(match[1])
			all, blocks = append(all, s), []*[]step{&s.steps}
		case len(blocks) == 0:
			return nil, fmt.Errorf("%s: a step must follow the title of a scenario", place)
		case verb == "end":
			if blocks = blocks[:len(blocks)-1]; len(blocks) == 0 {
				return nil, fmt.Errorf("%s: there is no block to end", place)
			}
		case known[verb] == nil:
			return nil, fmt.Errorf("%s: unknown step %q", place, verb)
		default:
			innermost := blocks[len(blocks)-1]
			*innermost = append(*innermost, step{place: place, text: line})
			if isBlock(verb) {
				blocks = append(blocks, &(*innermost)[len(*innermost)-1].block)
			}
		}
	}
	return all, nil
}

// isBlock reports whether other steps belong to a step, up to the line end.
func isBlock(verb string) bool { return verb == "for" || verb == "during" || verb == "if" }

// A token is a word, or a JSON value.
type token struct {
	text  string
	value any
	json  bool
}

// tokens splits a line at spaces that are not inside a JSON object, array or string.
func tokens(line string) (all []token, err error) {
	for {
		line = strings.TrimLeft(line, " ")
		if line == "" {
			return all, nil
		}
		if !strings.ContainsRune(`{["`, rune(line[0])) {
			word, rest, _ := strings.Cut(line, " ")
			all, line = append(all, token{text: word}), rest
			continue
		}
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		t := token{json: true}
		if err := decoder.Decode(&t.value); err != nil {
			return nil, fmt.Errorf("invalid JSON: %w", err)
		}
		t.text, line = line[:decoder.InputOffset()], line[decoder.InputOffset():]
		t.value = plain(t.value)
		all = append(all, t)
	}
}

// plain replaces numbers of JSON by integers where they are ones, so that every format encodes them as such.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		for key, member := range v {
			v[key] = plain(member)
		}
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
	}
	return value
}
