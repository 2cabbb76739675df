package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
)

// This file asks all nodes, and answers what other nodes ask.

// A question is what a node asks the others: a name of local, and its argument.
type question struct {
	Name     string          `json:"name"`
	Argument json.RawMessage `json:"argument,omitempty"`
}

// The answer to a question. Error is the text of an error; Result has no meaning then.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// A nodeAnswer is what one node has answered.
type nodeAnswer[R any] struct {
	Node   string
	Result R
}

// nodeStates say which nodes have answered.
type nodeStates struct {
	Answered []string     `json:"answered"`
	Missing  []nodeFailed `json:"missing"`  // the answer has nothing of these
	Complete bool         `json:"complete"` // false if there may be nodes that this one does not know
}

type nodeFailed struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

// errUnknownQuestion answers a question of a later version.
var errUnknownQuestion = errors.Errorf(errors.Unimplemented, "this node has another version of the inspector")

// gather asks all nodes including this one. It fails if this node does.
func gather[R any](ctx context.Context, i *Inspector, name string, argument any) ([]nodeAnswer[R], nodeStates, error) {
	states := nodeStates{Answered: []string{}, Missing: []nodeFailed{}}
	arg, err := json.Marshal(argument)
	if err != nil {
		return nil, states, err
	}
	own, err := i.answerOwn(ctx, question{name, arg})
	if err != nil {
		return nil, states, err
	}
	text, err := json.Marshal(question{name, arg})
	if err != nil {
		return nil, states, err
	}
	ctx, cancel := context.WithTimeout(ctx, i.opts.Timeout)
	defer cancel()
	others, all, err := i.access.Ask(ctx, text)
	if err != nil {
		return nil, states, err
	}
	states.Complete = all
	var answers []nodeAnswer[R]
	add := func(node string, text json.RawMessage) {
		a := nodeAnswer[R]{Node: node}
		if err := json.Unmarshal(text, &a.Result); err != nil {
			states.Missing = append(states.Missing, nodeFailed{node, "the answer is not valid"})
			return
		}
		answers = append(answers, a)
		states.Answered = append(states.Answered, node)
	}
	add(i.router.NodeID(), own)
	slices.SortFunc(others, func(a, b host.NodeAnswer) int { return cmp.Compare(a.Node, b.Node) })
	for _, other := range others {
		result, err := parseAnswer(other)
		if err != nil {
			states.Missing = append(states.Missing, nodeFailed{other.Node, publicText(err)})
			continue
		}
		add(other.Node, result)
	}
	return answers, states, nil
}

// parseAnswer returns the result of another node, or its error.
func parseAnswer(r host.NodeAnswer) (json.RawMessage, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	var a answer
	if err := json.Unmarshal(r.Answer, &a); err != nil {
		return nil, errors.Errorf(errors.Internal, "the answer is not valid")
	}
	if a.Error != "" {
		return nil, errors.Errorf(errors.Unavailable, "%s", a.Error)
	}
	return a.Result, nil
}

// answerOwn answers a question of this node, within the time that other nodes have.
func (i *Inspector) answerOwn(ctx context.Context, q question) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, i.opts.Timeout)
	defer cancel()
	return i.answerLocal(ctx, q)
}

// answer answers a question of another node. A panic of a function of the application, such as
// Limit.Key, ends the question only.
func (i *Inspector) answer(text []byte) (answered []byte) {
	defer func() {
		if v := recover(); v != nil {
			answered = mustMarshal(answer{Error: "a function of the application has panicked"})
		}
	}()
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		return mustMarshal(answer{Error: "the question is not valid"})
	}
	result, err := i.answerOwn(context.Background(), q)
	if err != nil {
		return mustMarshal(answer{Error: publicText(err)})
	}
	return mustMarshal(answer{Result: result})
}

// answerLocal answers a question about this node.
func (i *Inspector) answerLocal(ctx context.Context, q question) (json.RawMessage, error) {
	f := i.local(q.Name)
	if f == nil {
		return nil, errUnknownQuestion
	}
	result, err := f(ctx, q.Argument)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// localFunc makes a function of its argument one of the JSON of the argument.
func localFunc[A, R any](f func(context.Context, A) (R, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, text json.RawMessage) (any, error) {
		var arg A
		if err := json.Unmarshal(text, &arg); err != nil {
			return nil, fmt.Errorf("inspect: read a question: %w", err)
		}
		return f(ctx, arg)
	}
}

// mustMarshal encodes an answer, whose Result is JSON already.
func mustMarshal(a answer) []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // impossible
	}
	return text
}
