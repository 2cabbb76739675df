package main

import (
	"context"
	"strings"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/run"
)

// A model answers a conversation, whose last message is the question. It calls emit with each part
// of the text. It returns the tokens that a provider has counted, including those of the
// conversation, or 0 if it has not.
type model func(ctx context.Context, conversation []Message, emit func(text string) error) (used int64, err error)

// slice is how many tokens an answer takes from the budget at once.
const slice = 100

// minTokens is the smallest budget: one slice, and a question.
const minTokens = 2 * slice

// budgetOf returns what an answer takes from the budget of its user.
func (s *server) budgetOf(ctx context.Context, c chat, question Message) (*run.Budget, error) {
	conversation, err := s.chats.load(ctx, c)
	if err != nil {
		return nil, err
	}
	prompt := s.latest(add(conversation, question))
	return &run.Budget{Keys: []limit.Key{userKey(c.user)}, Prompt: estimate(prompt), Slice: slice}, nil
}

// latest returns the messages that a model receives: the question, and as many before it as half of
// the budget per minute permits.
func (s *server) latest(conversation []Message) []Message {
	first := len(conversation) - 1
	for first > 0 && estimate(conversation[first-1:]) <= s.contextTokens {
		first--
	}
	return conversation[first:]
}

// estimate returns about how many tokens messages have, before a provider has counted them.
func estimate(messages []Message) (tokens int64) {
	for _, m := range messages {
		tokens += int64(len(m.Text))/4 + 1
	}
	return tokens
}

// tokensOf is what a chunk costs: providers send about a token at a time.
func tokensOf(c aisdk.Chunk) int64 {
	if c.Delta == nil {
		return 0
	}
	return 1
}

// answer is the producer of a run. It saves the question before the answer begins, and the answer
// before the run ends, whatever its end is: a page that finds no run has the whole conversation.
func (s *server) answer(ctx context.Context, c chat, question Message, sc *script, out *aisdk.Output) (err error) {
	id := out.Run().ID
	if err := s.chats.save(ctx, c, question, id+"/question"); err != nil {
		return err
	}
	reply := Message{ID: id, Role: RoleAssistant, ReplyTo: question.ID}
	var text strings.Builder
	defer func() {
		reply.Text, reply.Incomplete = text.String(), err != nil
		err = errors.Join(err, s.chats.save(context.WithoutCancel(ctx), c, reply, id+"/answer"))
	}()
	if err := errors.Join(out.Emit(aisdk.Start(id, map[string]string{"run": id})), out.Emit(aisdk.StartStep()), out.Emit(aisdk.TextStart("text"))); err != nil {
		return err
	}
	emit := func(delta string) error {
		err := out.Emit(aisdk.TextDelta("text", delta))
		if err == nil {
			text.WriteString(delta)
		}
		return err
	}
	if sc != nil {
		return sc.play(ctx, emit)
	}
	conversation, err := s.chats.load(ctx, c)
	if err != nil {
		return err
	}
	used, err := s.model(ctx, s.latest(conversation), emit)
	if used > 0 {
		out.Used(used)
	}
	return err
}
