package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A scriptError is a mistake in a scenario. The functions of arguments panic with it, and run.step recovers it.
type scriptError string

// arguments are what follows the verb of a step, without `as name`.
type arguments struct {
	tokens []token
	as     string
	block  []step
}

func (a *arguments) more() bool { return len(a.tokens) > 0 }

func (a *arguments) next(what string) token {
	if len(a.tokens) == 0 {
		panic(scriptError("the step needs " + what))
	}
	t := a.tokens[0]
	a.tokens = a.tokens[1:]
	return t
}

func (a *arguments) word() string { return a.next("another word").text }

func (a *arguments) number() int {
	word := a.word()
	n, err := strconv.Atoi(word)
	if err != nil {
		panic(scriptError(fmt.Sprintf("%q must be an integer", word)))
	}
	return n
}

func (a *arguments) duration() time.Duration { return duration(a.word()) }

func duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		panic(scriptError(fmt.Sprintf("%q must be a duration such as 2s", word)))
	}
	return d
}

// span reads a range such as 2s..4s, 2s.. or ..4s.
func (a *arguments) span() (from, to time.Duration) {
	low, high, ok := strings.Cut(a.word(), "..")
	if !ok {
		panic(scriptError("a range is 2s..4s, 2s.. or ..4s"))
	}
	to = 1<<63 - 1
	if low != "" {
		from = duration(low)
	}
	if high != "" {
		to = duration(high)
	}
	return from, to
}

// interval reads a range of integers such as 0..5.
func (a *arguments) interval() (from, to int) {
	low, high, ok := strings.Cut(a.word(), "..")
	from, err1 := strconv.Atoi(low)
	to, err2 := strconv.Atoi(high)
	if !ok || err1 != nil || err2 != nil {
		panic(scriptError("a range is 0..5"))
	}
	return from, to
}

// object reads a JSON object, or returns nil if none follows.
func (a *arguments) object() map[string]any {
	if len(a.tokens) == 0 || !a.tokens[0].json {
		return nil
	}
	object, ok := a.next("an object").value.(map[string]any)
	if !ok {
		panic(scriptError("the JSON value must be an object"))
	}
	return object
}

// pattern reads an object to compare with.
func (a *arguments) pattern() map[string]any {
	if object := a.object(); object != nil {
		return object
	}
	return map[string]any{}
}
