package router_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// This file runs the stories in testdata/stories. A story is a title, and steps:
//
//	== a session continues on another node
//	open ann 1
//	grant ann plain/a
//	abort ann
//	connect ann2 2
//	resume ann2 ann => plain/a
//
// Each step is a function of story_steps_test.go and story_client_test.go with its arguments; what follows "=>" is the expected
// result, a range of numbers, "5 to 40", or alternatives with "or". Without it, the step must not fail. Semicolons separate steps of one line, and # begins
// a comment. Before the steps, "options" configures the nodes, and "let" runs the story once for each
// alternative, which "$NAME" inserts:
//
//	let END = abort ann | close ann 1001; wait 1s | -
//
// A story with several lets runs for all combinations. "before N: STEPS" runs steps just before the next
// value of node N is stored.

// A story is one combination of the alternatives of a story.
type story struct {
	file, title string
	lets        []string // the alternatives
	steps       []storyStep
}

type storyStep struct {
	line int
	text string
}

func TestStories_Resume(t *testing.T)     { runStories(t, "resume") }
func TestStories_Faults(t *testing.T)     { runStories(t, "faults") }
func TestStories_Presence(t *testing.T)   { runStories(t, "presence") }
func TestStories_Revoke(t *testing.T)     { runStories(t, "revoke") }
func TestStories_Users(t *testing.T)      { runStories(t, "users") }
func TestStories_Identities(t *testing.T) { runStories(t, "identities") }
func TestStories_Topics(t *testing.T)     { runStories(t, "topics") }
func TestStories_State(t *testing.T)      { runStories(t, "state") }

func runStories(t *testing.T, name string) {
	t.Parallel()
	stories := readStories(t, "testdata/stories/"+name+".txt")
	require.NotEmpty(t, stories)
	for _, s := range stories {
		runSynctest(t, strings.Join(append([]string{s.title}, s.lets...), ", "), s.run)
	}
}

// readStories returns the stories of a file, in all combinations.
func readStories(t *testing.T, file string) (all []story) {
	text, err := os.ReadFile(file) //nolint:gosec // a test file
	require.NoError(t, err)
	var current []story
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
		case word == "==":
			all = append(all, current...)
			current = []story{{file: file, title: rest}}
		case word == "let":
			current = alternatives(current, rest)
		default:
			for n := range current {
				current[n].steps = append(current[n].steps, storyStep{i + 1, line})
			}
		}
	}
	return append(all, current...)
}

// alternatives returns each story with each alternative of a let.
func alternatives(stories []story, let string) (all []story) {
	name, list, _ := strings.Cut(let, " = ")
	for _, s := range stories {
		for alternative := range strings.SplitSeq(list, "|") {
			alternative = strings.TrimSpace(alternative)
			next := s
			next.lets = append(append([]string(nil), s.lets...), "$"+name+"="+alternative)
			all = append(all, next)
		}
	}
	return all
}

// expand inserts the alternatives into a line, and returns its steps.
func (s *story) expand(line string) []string {
	for _, let := range slices.Backward(s.lets) { // an alternative may have the name of an earlier one
		name, value, _ := strings.Cut(let, "=")
		line = strings.ReplaceAll(line, name, value)
	}
	return strings.Split(line, ";")
}

func (s story) run(t *testing.T) {
	w := &storyWorld{t: t, clients: map[string]*storyClient{}, remembered: map[string]string{}, denied: map[string]bool{}}
	options := map[string]string{}
	for _, step := range s.steps {
		w.where = fmt.Sprintf("%s:%d: %s", s.file, step.line, step.text)
		if rest, ok := strings.CutPrefix(step.text, "options "); ok {
			for _, line := range s.expand(rest) {
				for option := range strings.FieldsSeq(line) {
					name, value, _ := strings.Cut(option, "=")
					options[name] = value
				}
			}
			continue
		}
		w.start(options)
		if node, steps, ok := strings.Cut(strings.TrimPrefix(step.text, "before "), ": "); ok && strings.HasPrefix(step.text, "before ") {
			meanwhile := func() { w.steps(s.expand(steps), false) }
			w.broker(node).before.Store(&meanwhile)
			continue
		}
		w.steps(s.expand(step.text), true)
	}
	synctest.Wait()
}

// steps runs steps, and compares their results. If settle is set, it waits after each until nothing happens any more.
func (w *storyWorld) steps(steps []string, settle bool) {
	w.t.Helper()
	for _, step := range steps {
		call, want, expected := strings.Cut(step, "=>")
		words := series(call)
		if len(words) == 0 || words[0] == "-" {
			continue
		}
		do := storySteps()[words[0]]
		require.NotNil(w.t, do, "unknown step: %s", w.where)
		got, err := do(w, words[1:])
		if settle {
			synctest.Wait()
		}
		want = strings.Join(series(want), " ")
		from, to, between := strings.Cut(want, " to ")
		switch {
		case !expected:
			require.NoError(w.t, err, w.where)
		case between:
			require.True(w.t, number(w, from, 0) <= number(w, got, 0) && number(w, got, 0) <= number(w, to, 0), "%s: %s", w.where, got)
		case strings.Contains(want+" ", " or "):
			require.Contains(w.t, alternativesOf(want), got, w.where)
		default:
			require.Equal(w.t, want, got, w.where)
		}
	}
}

// series returns the words of a text, and the numbers of those that are "1..5".
func series(text string) (words []string) {
	for word := range strings.FieldsSeq(text) {
		from, to, ok := strings.Cut(word, "..")
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if !ok || err != nil || err2 != nil {
			words = append(words, word)
			continue
		}
		words = append(words, numbers(first, last)...)
	}
	return words
}

// alternativesOf returns what "A or B" permits. "A or" permits nothing, too.
func alternativesOf(want string) (all []string) {
	for one := range strings.SplitSeq(want+" ", " or ") {
		all = append(all, strings.TrimSpace(one))
	}
	return all
}
