package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// fakeModel answers with a text about the question, one word at a time, which is longer for a
// longer question. It needs no network.
func fakeModel(ctx context.Context, conversation []Message, emit func(text string) error) (int64, error) {
	question := conversation[len(conversation)-1].Text
	words := strings.Fields(question)
	var text strings.Builder
	fmt.Fprintf(&text, "You have asked: %q. It is question %d of this chat, and has %d words. ", question, questions(conversation), len(words))
	text.WriteString("I am a fake model, so I know nothing about it. But I write slowly enough for you to reload the page, to open it in a second tab, or to stop me. ")
	for i, word := range words {
		fmt.Fprintf(&text, "Word %d is %s, and it has %d letters. ", i+1, word, utf8.RuneCountInString(word))
	}
	for word := range strings.SplitAfterSeq(text.String(), " ") {
		if err := wait(ctx, 40*time.Millisecond); err != nil {
			return 0, err
		}
		if err := emit(word); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func questions(conversation []Message) (n int) {
	for _, m := range conversation {
		if m.Role == RoleUser {
			n++
		}
	}
	return n
}

// A script is what a client of the AI SDK sends as "script" in the body of a request: an answer
// with a number of items. It is for tests, and costs no tokens.
type script struct {
	Items     int    `json:"items"`
	EveryMs   int    `json:"everyMs"`
	FailAfter int    `json:"failAfter"` // the number of the item before which the answer fails; -1: none
	Text      string `json:"text"`
}

// scriptOf returns the script of a request, or nil without one.
func scriptOf(body json.RawMessage) (*script, error) {
	var b struct {
		Script json.RawMessage `json:"script"`
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Script == nil {
		return nil, err
	}
	s := &script{Items: 10, EveryMs: 2, FailAfter: -1, Text: "w"}
	if err := json.Unmarshal(b.Script, s); err != nil {
		return nil, errors.InvalidField("body.script", `must be an object such as {"items":10,"everyMs":2,"failAfter":-1,"text":"w"}`)
	}
	if s.Items < 0 || s.Items > 100_000 || s.EveryMs < 0 || s.EveryMs > 60_000 || len(s.Text) > 10_000 {
		return nil, errors.InvalidField("body.script", "must have 0 to 100000 items, every 0 to 60000 ms, and a text of at most 10000 bytes")
	}
	return s, nil
}

// play emits the items.
func (s *script) play(ctx context.Context, emit func(text string) error) error {
	for n := range s.Items {
		if n == s.FailAfter {
			return errors.Errorf(errors.Unavailable, "the script fails before item %d", n)
		}
		if err := wait(ctx, time.Duration(s.EveryMs)*time.Millisecond); err != nil {
			return err
		}
		if err := emit(fmt.Sprint(s.Text, n, " ")); err != nil {
			return err
		}
	}
	return nil
}

// wait returns the cause if ctx ends before d has passed.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
