package ask

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/errors"
)

// This file carries the questions of package inspect to other nodes. It knows nothing of their
// content.

const (
	// maxQuestions bounds the questions of this node that wait for answers, and those of other
	// nodes that it answers.
	maxQuestions = 32

	// maxQuestionBytes bounds the answer of one node, and maxAnswersBytes those of all nodes.
	maxQuestionBytes = 512 << 10
	maxAnswersBytes  = 16 << 20
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

// A NodeAnswer is what a node has answered.
type NodeAnswer struct {
	Node   string
	Answer []byte // if Err is nil
	Err    error
}

// questions are those of this node, and what answers those of others.
type questions struct {
	mu      sync.Mutex // no other lock is acquired under it
	last    uint64
	open    map[uint64]*question
	answer  func(question []byte) []byte // nil if nothing answers
	serving int                          // questions of other nodes
}

// A question waits for the answers of some nodes. The lock of questions guards it.
type question struct {
	waits map[string]bool
	bytes int
	ready chan NodeAnswer // has room for an answer of each node
}

// AnswerQuestions sets the function that answers questions of other nodes. Their answers have at
// most 512 KiB. It is called concurrently, on goroutines of its own.
func (n *Node) AnswerQuestions(answer func(question []byte) []byte) {
	q := &n.questions
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer = answer
}

// Ask asks all other nodes, and returns one answer for each when all have answered or ctx is done,
// whichever is first. all is false if there may be more nodes.
func (n *Node) Ask(ctx context.Context, text []byte) (answers []NodeAnswer, all bool, err error) {
	nodes, all := n.config.Node.Nodes()
	number, asked, err := n.questions.begin(nodes)
	if err != nil {
		return nil, all, err
	}
	defer n.questions.end(number)
	packet := binary.AppendUvarint([]byte{questionAsk}, number)
	packet = append(packet, text...)
	for _, node := range nodes {
		if err := n.publish(node, bytes.Clone(packet)); err != nil {
			n.questions.deliver(number, NodeAnswer{Node: node, Err: err})
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
			answers = append(answers, NodeAnswer{Node: node, Err: errNoAnswer})
		}
	}
	return answers, all, nil
}

func (q *questions) begin(nodes []string) (number uint64, asked *question, err error) {
	asked = &question{waits: map[string]bool{}, ready: make(chan NodeAnswer, len(nodes))}
	for _, node := range nodes {
		asked.waits[node] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if open := len(q.open) + 1; open > maxQuestions {
		return 0, nil, &Limit{Kind: limitConcurrency, Observed: int64(open), Limit: maxQuestions}
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
func (q *questions) deliver(number uint64, a NodeAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.open[number]
	if asked == nil || !asked.waits[a.Node] {
		return
	}
	if asked.bytes+len(a.Answer) > maxAnswersBytes {
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
			asked.ready <- NodeAnswer{Node: node, Err: errNodeLeft(node)} // has room
		}
	}
}

// receiveQuestion answers a question of another node.
func (n *Node) receiveQuestion(from string, in *packetReader) {
	number, text := in.uvarint(), bytes.Clone(in.rest)
	if in.malformed {
		return
	}
	q := &n.questions
	q.mu.Lock()
	answer := q.answer
	refused := q.serving >= maxQuestions
	if answer != nil && !refused {
		q.serving++
	}
	q.mu.Unlock()
	switch {
	case answer == nil:
		n.answerQuestion(from, number, questionUnknown, nil)
	case refused:
		n.answerQuestion(from, number, questionRefused, nil)
	default:
		go n.serveQuestion(from, number, text, answer)
	}
}

func (n *Node) serveQuestion(from string, number uint64, text []byte, answer func([]byte) []byte) {
	defer func() {
		n.questions.mu.Lock()
		defer n.questions.mu.Unlock()
		n.questions.serving--
	}()
	answered := answer(text)
	if len(answered) > maxQuestionBytes {
		n.answerQuestion(from, number, questionRefused, nil)
		return
	}
	n.answerQuestion(from, number, questionAnswered, answered)
}

// answerQuestion sends the number of the question, the outcome as a byte, and the answer.
func (n *Node) answerQuestion(node string, number uint64, outcome byte, answer []byte) {
	packet := append(binary.AppendUvarint([]byte{questionAnswer}, number), outcome)
	_ = n.publish(node, append(packet, answer...)) // otherwise this node counts as one that has not answered
}

func (n *Node) receiveQuestionAnswer(from string, in *packetReader) {
	number, outcome := in.uvarint(), in.byte()
	if in.malformed {
		return
	}
	a := NodeAnswer{Node: from}
	switch {
	case outcome == questionUnknown:
		a.Err = errUnanswered
	case outcome != questionAnswered:
		a.Err = errManyQuestions
	case len(in.rest) > maxQuestionBytes:
		a.Err = fmt.Errorf("the answer has %d bytes; it must have at most %d", len(in.rest), maxQuestionBytes)
	default:
		a.Answer = in.rest
	}
	n.questions.deliver(number, a)
}
