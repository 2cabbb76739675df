package ask

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
)

// A linkedNode publishes to the other node of a pair.
type linkedNode struct {
	broker.Node

	name string
	all  bool
	pair map[string]*Node
}

func (s linkedNode) Name() string { return s.name }

func (s linkedNode) Nodes() (others []string, all bool) {
	for name := range s.pair {
		if name != s.name {
			others = append(others, name)
		}
	}
	return others, s.all
}

func (s linkedNode) Publish(topic string, packet []byte) error {
	s.pair[strings.TrimPrefix(topic, nodeTopicPrefix)].Receive(s.name, packet)
	return nil
}

func newPair() (one, two *Node) {
	pair := map[string]*Node{"one": new(Node), "two": new(Node)}
	for name, n := range pair {
		n.Init(Config{Node: linkedNode{name: name, all: name == "one", pair: pair}, MaxOpen: 3})
	}
	return pair["one"], pair["two"]
}

func TestQuestion_NodeWithoutAnswerSaysSo(t *testing.T) {
	one, two := newPair()
	answers, all, err := one.Ask(t.Context(), []byte("?"))
	require.NoError(t, err)
	assert.True(t, all)
	assert.Equal(t, []host.NodeAnswer{{Node: "two", Err: errUnanswered}}, answers)
	_, all, err = two.Ask(t.Context(), nil)
	require.NoError(t, err)
	assert.False(t, all)
}

func TestQuestion_AnswersAreBounded(t *testing.T) {
	one, two := newPair()
	for size, want := range map[int]error{maxQuestionBytes: nil, maxQuestionBytes + 1: errManyQuestions} {
		two.AnswerQuestions(func(q []byte) []byte {
			assert.Equal(t, "?", string(q))
			return bytes.Repeat([]byte("x"), size)
		})
		answers, _, err := one.Ask(t.Context(), []byte("?"))
		require.NoError(t, err)
		require.Len(t, answers, 1)
		assert.Equal(t, want, answers[0].Err)
		assert.Equal(t, want == nil, len(answers[0].Answer) == size)
	}
}

// TestQuestion_AskerKeepsNoMoreThanItsBounds has a node that sends what was not asked.
func TestQuestion_AskerKeepsNoMoreThanItsBounds(t *testing.T) {
	q := new(questions)
	q.init(questionAsk, questionAnswer, boundsForAll)
	number, asked, err := q.begin([]string{"two", "three"})
	require.NoError(t, err)
	q.deliver(number, host.NodeAnswer{Node: "four", Answer: []byte("x")})
	q.deliver(number+1, host.NodeAnswer{Node: "two", Answer: []byte("x")})
	assert.Empty(t, asked.ready)
	asked.bytes = maxAnswersBytes - 1
	q.deliver(number, host.NodeAnswer{Node: "two", Answer: []byte("xx")})
	q.deliver(number, host.NodeAnswer{Node: "two", Answer: []byte("again")})
	assert.Len(t, asked.ready, 1)
	assert.Equal(t, host.NodeAnswer{Node: "two", Err: errManyAnswers}, <-asked.ready)
	for range maxQuestions - 1 {
		_, _, err := q.begin(nil)
		require.NoError(t, err)
	}
	_, _, err = q.begin(nil)
	assert.Equal(t, &Limit{Kind: limitConcurrency, Observed: maxQuestions + 1, Limit: maxQuestions}, err)
}

// TestQuestion_NodeRefusesTooMany blocks as many answers as a node gives at the same time.
func TestQuestion_NodeRefusesTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newPair()
		release := make(chan struct{})
		two.AnswerQuestions(func([]byte) []byte {
			<-release
			return nil
		})
		for number := range uint64(maxQuestions) {
			two.Receive("one", []byte{questionAsk, byte(number)})
		}
		answers, _, err := one.Ask(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, []host.NodeAnswer{{Node: "two", Err: errManyQuestions}}, answers)
		close(release)
		synctest.Wait()
		answers, _, err = one.Ask(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, []host.NodeAnswer{{Node: "two", Answer: []byte{}}}, answers)
	})
}

// TestQuestion_EndsWithItsContextOrItsNode has a node that does not answer, and then leaves.
func TestQuestion_EndsWithItsContextOrItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := new(Node)
		one.Init(Config{Node: lonelyNode{name: "one"}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answers, _, err := one.Ask(ctx, nil)
		require.NoError(t, err)
		assert.Equal(t, []host.NodeAnswer{{Node: "two", Err: errNoAnswer}}, answers)
		time.AfterFunc(time.Second, func() { one.NodeLeft("two") })
		answers, _, err = one.Ask(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, answers, 1)
		assert.Equal(t, errors.Unavailable, errors.CodeOf(answers[0].Err))
		assert.ErrorContains(t, answers[0].Err, "has left or failed")
		assert.Empty(t, one.questions.open)
	})
}

// TestQuestion_MalformedPacketsAreIgnored has packets that other versions may send.
func TestQuestion_MalformedPacketsAreIgnored(t *testing.T) {
	one := newNode("one")
	one.AnswerQuestions(func([]byte) []byte {
		t.Error("answered")
		return nil
	})
	for _, packet := range [][]byte{{questionAsk}, {questionAsk, 0x80}, {questionAnswer}, {questionAnswer, 1}, {questionAnswer, 0x80, 0}, {questionAnswer, 9, 0}} {
		one.Receive("two", packet)
	}
	assert.Zero(t, one.questions.serving)
}
