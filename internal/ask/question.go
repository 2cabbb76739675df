package ask

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
)

// This file carries questions to other nodes: those of package inspect to all of them, and those of
// internal/fallback to one. It knows nothing of their content.

// The bounds of questions to all nodes.
const (
	maxQuestions     = 32
	maxQuestionBytes = 512 << 10 // of the answer of one node
	maxAnswersBytes  = 16 << 20  // of all nodes
)

// The first byte of an answer to a question.
const (
	questionAnswered = iota
	questionUnknown  // the node has nothing that answers
	questionRefused  // it answers too many others, or its answer is too long
)

var (
	errUnanswered    = &errors.Error{Code: errors.Unimplemented, Message: "no inspector is mounted on this node"}
	errManyQuestions = &errors.Error{Code: errors.ResourceExhausted, Message: "the node answers too many questions, or its answer is too long"}
	errNoAnswer      = &errors.Error{Code: errors.Unavailable, Message: "the node has not answered in time"}
)

// questions are all of a kind: those of this node, and what answers those of others.
type questions struct {
	asks, answers byte // the kinds of their packets; read-only after Init

	mu      sync.Mutex // no other lock is acquired under it
	bounds  QuestionBounds
	last    uint64
	open    map[uint64]*question
	answer  func(question []byte) []byte // nil if nothing answers
	serving int                          // questions of other nodes
}

// A question waits for the answers of some nodes. The lock of questions guards it.
type question struct {
	waits map[string]bool
	bytes int
	ready chan host.NodeAnswer // has room for an answer of each node
}

// QuestionBounds bound questions of a kind.
type QuestionBounds struct {
	Open        int // of this node, without a complete answer, and as many of other nodes that it answers
	AnswerBytes int // of one node
	TotalBytes  int // of all nodes that are asked
}

// AnswerQuestions sets the function that answers questions of other nodes. Their answers have at
// most 512 KiB. It is called concurrently, on goroutines of its own.
func (n *Node) AnswerQuestions(answer func(question []byte) []byte) {
	n.questions.answerWith(answer, boundsForAll)
}

// AnswerOwned is AnswerQuestions for those of AskOwner, and sets their bounds.
func (n *Node) AnswerOwned(answer func(question []byte) []byte, bounds QuestionBounds) {
	n.owned.answerWith(answer, bounds)
}

func (q *questions) answerWith(answer func([]byte) []byte, bounds QuestionBounds) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer, q.bounds = answer, bounds
}

// init sets the kinds of packets, and bounds that hold until something answers.
func (q *questions) init(asks, answers byte, bounds QuestionBounds) {
	q.asks, q.answers = asks, answers
	q.answerWith(nil, bounds)
}

//nolint:gochecknoglobals // never changed
var boundsForAll = QuestionBounds{maxQuestions, maxQuestionBytes, maxAnswersBytes}

// Ask asks all other nodes, and returns one answer for each when all have answered or ctx is done,
// whichever is first. all is false if there may be more nodes.
func (n *Node) Ask(ctx context.Context, question []byte) (answers []host.NodeAnswer, all bool, err error) {
	nodes, all := n.config.Node.Nodes()
	answers, err = n.ask(ctx, &n.questions, nodes, question)
	return answers, all, err
}

// AskOwner asks one node, and returns its answer. After an error, the node may have received the question.
func (n *Node) AskOwner(ctx context.Context, node string, question []byte) ([]byte, error) {
	answers, err := n.ask(ctx, &n.owned, []string{node}, question)
	if err != nil {
		return nil, err
	}
	return answers[0].Answer, answers[0].Err
}

func (n *Node) ask(ctx context.Context, q *questions, nodes []string, text []byte) (answers []host.NodeAnswer, err error) {
	number, asked, err := q.begin(nodes)
	if err != nil {
		return nil, err
	}
	defer q.end(number)
	packet := binary.AppendUvarint([]byte{q.asks}, number)
	packet = append(packet, text...)
	for _, node := range nodes {
		if err := n.publish(node, bytes.Clone(packet)); err != nil {
			q.deliver(number, host.NodeAnswer{Node: node, Err: err})
		}
	}
	answered := map[string]bool{}
	for len(answers) < len(nodes) {
		select {
		case a := <-asked.ready:
			answers, answered[a.Node] = append(answers, a), true
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, node := range nodes {
		if !answered[node] {
			answers = append(answers, host.NodeAnswer{Node: node, Err: errNoAnswer})
		}
	}
	return answers, nil
}

func (q *questions) begin(nodes []string) (number uint64, asked *question, err error) {
	asked = &question{waits: map[string]bool{}, ready: make(chan host.NodeAnswer, len(nodes))}
	for _, node := range nodes {
		asked.waits[node] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if open := len(q.open) + 1; open > q.bounds.Open {
		return 0, nil, &Limit{Kind: limitConcurrency, Observed: int64(open), Limit: int64(q.bounds.Open)}
	}
	if q.open == nil {
		q.open = map[uint64]*question{}
	}
	q.last++
	q.open[q.last] = asked
	return q.last, asked, nil
}

func (q *questions) end(number uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, number)
}

// deliver hands an answer to the question with a number. An answer that is not expected is ignored.
func (q *questions) deliver(number uint64, a host.NodeAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.open[number]
	if asked == nil || !asked.waits[a.Node] {
		return
	}
	if asked.bytes+len(a.Answer) > q.bounds.TotalBytes {
		a.Answer, a.Err = nil, errManyAnswers
	}
	asked.bytes += len(a.Answer)
	delete(asked.waits, a.Node)
	a.Answer = bytes.Clone(a.Answer)
	asked.ready <- a // has room
}

// nodeLeft ends what was asked of a node.
func (q *questions) nodeLeft(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, asked := range q.open {
		if asked.waits[node] {
			delete(asked.waits, node)
			asked.ready <- host.NodeAnswer{Node: node, Err: errNodeLeft(node)} // has room
		}
	}
}

// receiveQuestion answers a question of another node.
func (n *Node) receiveQuestion(q *questions, from string, in *packetReader) {
	number, text := in.uvarint(), bytes.Clone(in.rest)
	if in.malformed {
		return
	}
	q.mu.Lock()
	answer := q.answer
	refused := q.serving >= q.bounds.Open
	if answer != nil && !refused {
		q.serving++
	}
	q.mu.Unlock()
	switch {
	case answer == nil:
		n.answerQuestion(q, from, number, questionUnknown, nil)
	case refused:
		n.answerQuestion(q, from, number, questionRefused, nil)
	default:
		go n.serveQuestion(q, from, number, text, answer)
	}
}

func (n *Node) serveQuestion(q *questions, from string, number uint64, text []byte, answer func([]byte) []byte) {
	answered := q.serve(text, answer)
	if len(answered) > q.maxAnswerBytes() {
		n.answerQuestion(q, from, number, questionRefused, nil)
		return
	}
	n.answerQuestion(q, from, number, questionAnswered, answered)
}

// serve answers a question. It makes room for another one before the node that has asked learns that
// this one has ended.
func (q *questions) serve(text []byte, answer func([]byte) []byte) []byte {
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.serving--
	}()
	return answer(text)
}

// maxAnswerBytes returns the bound of the answer of one node.
func (q *questions) maxAnswerBytes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bounds.AnswerBytes
}

// answerQuestion sends the number of the question, the outcome as a byte, and the answer.
func (n *Node) answerQuestion(q *questions, node string, number uint64, outcome byte, answer []byte) {
	packet := append(binary.AppendUvarint([]byte{q.answers}, number), outcome)
	_ = n.publish(node, append(packet, answer...)) // otherwise this node counts as one that has not answered
}

func (n *Node) receiveQuestionAnswer(q *questions, from string, in *packetReader) {
	number, outcome := in.uvarint(), in.byte()
	if in.malformed {
		return
	}
	a := host.NodeAnswer{Node: from}
	switch maxBytes := q.maxAnswerBytes(); {
	case outcome == questionUnknown:
		a.Err = errUnanswered
	case outcome != questionAnswered:
		a.Err = errManyQuestions
	case len(in.rest) > maxBytes:
		a.Err = fmt.Errorf("the answer has %d bytes; it must have at most %d", len(in.rest), maxBytes)
	default:
		a.Answer = in.rest
	}
	q.deliver(number, a)
}
