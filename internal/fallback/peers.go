package fallback

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/random"
)

// This file answers requests for connections of other nodes.

const (
	// peerWait bounds how long an owner may take to answer. It takes ownerWait for a poll without events.
	peerWait  = 5 * time.Second
	ownerWait = 4 * time.Second
)

// MaxAnswerBytes returns the bound of an answer, for messages of at most some bytes.
func MaxAnswerBytes(messageBytes int) int {
	return windowBytes + min(messageBytes, maxMessageBytes) + 1<<10
}

// Peers are the other nodes.
type Peers struct {
	Name string // of this node

	// Nodes returns the names of the others. all is false if there may be more.
	Nodes func() (others []string, all bool)

	// Ask sends a question to a node, and returns what Server.Answer returns there. After an error, the node may have
	// received the question.
	Ask func(ctx context.Context, node string, question []byte) ([]byte, error)
}

// The first byte of a question says what follows.
const (
	upQuestion   = 'u' // the body of an up
	downQuestion = 'd' // a peerPoll
)

// A peerPoll asks for the events of a response that another node sends.
type peerPoll struct {
	Secret   string `json:"secret"`
	Response uint64 `json:"response"`        // its ID
	Begins   bool   `json:"begins,omitzero"` // it is the first one of the response, and for a down that the client has sent now
	After    uint64 `json:"after"`           // ID of the last event that the response has sent; first, the ack of the down
	WaitMs   int64  `json:"waitMs"`          // at most ownerWait
}

// Answer answers a question of another node. It is called concurrently, and may wait.
func (s *Server) Answer(question []byte) []byte {
	if len(question) > 0 {
		switch rest := question[1:]; question[0] {
		case upQuestion:
			return peerAnswer{status: s.answerUp(rest)}.encode()
		case downQuestion:
			return s.answerDown(rest).encode()
		}
	}
	return peerAnswer{status: http.StatusServiceUnavailable}.encode() // of a newer version
}

func (s *Server) answerUp(body []byte) (status int) {
	line, messages, _ := bytes.Cut(body, []byte("\n"))
	up, err := parseUp(line)
	if err != nil {
		return http.StatusBadRequest
	}
	counts := s.bodies.begin(netip.Prefix{}, up.secret.digest()) // the other node has counted it for the client
	defer counts.end()
	if counts.add(len(messages)) != nil {
		return http.StatusServiceUnavailable
	}
	return s.handleUp(up, func() ([]byte, int) { return messages, 0 })
}

func (s *Server) answerDown(text []byte) peerAnswer {
	var poll peerPoll
	if err := jsonv2.Unmarshal(text, &poll); err != nil {
		return peerAnswer{status: http.StatusBadRequest}
	}
	key, _ := parseSecret(poll.Secret)
	c := s.find(key)
	if c == nil {
		return peerAnswer{status: http.StatusConflict}
	}
	if poll.Begins {
		if !c.acknowledge(poll.After, true) {
			return peerAnswer{status: http.StatusConflict}
		}
		c.heard()
		s.responses.end(key)
	}
	r := c.attach(poll.Response, poll.Begins)
	if r == nil {
		return peerAnswer{status: http.StatusConflict}
	}
	defer c.detach(r)
	c.sentUpTo(poll.After)
	wait := min(time.Duration(poll.WaitMs)*time.Millisecond, ownerWait)
	b, current := c.next(context.Background(), r, poll.After, wait)
	if !current {
		return peerAnswer{status: http.StatusConflict}
	}
	if b.end {
		c.sentEnd()
	}
	return peerAnswer{http.StatusOK, b}
}

// A peerAnswer is the answer to a question: a status, and the events for a down.
type peerAnswer struct {
	status int
	batch  batch
}

func (a peerAnswer) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(a.status)) //nolint:gosec // not negative
	b = binary.AppendUvarint(b, a.batch.last)
	end := byte(0)
	if a.batch.end {
		end = 1
	}
	return append(append(b, end), a.batch.text...)
}

// parsePeerAnswer parses an answer. One that it does not understand is that of a node which cannot answer now.
func parsePeerAnswer(b []byte) peerAnswer {
	status, n := binary.Uvarint(b)
	if n <= 0 || status < 200 || status > 599 {
		return peerAnswer{status: http.StatusServiceUnavailable}
	}
	last, m := binary.Uvarint(b[n:])
	if m <= 0 || len(b) == n+m {
		return peerAnswer{status: http.StatusServiceUnavailable}
	}
	b = b[n+m:]
	return peerAnswer{int(status), batch{text: b[1:], last: last, end: b[0] == 1}}
}

// ownerOf returns the node of a connection, or the status of the answer if there is none.
func (s *Server) ownerOf(secret secret) (node string, status int) {
	others, all := s.config.Peers.Nodes()
	for _, other := range others {
		if hashNode(other) == secret.node() {
			return other, 0
		}
	}
	if s.ctx.Err() != nil || !all {
		return "", http.StatusServiceUnavailable
	}
	return "", http.StatusConflict
}

// ask asks the node of a connection.
func (s *Server) ask(ctx context.Context, node string, question []byte) peerAnswer {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	text, err := s.config.Peers.Ask(ctx, node, question)
	if err == nil {
		return parsePeerAnswer(text)
	}
	others, all := s.config.Peers.Nodes()
	if all && !slices.Contains(others, node) { // it has left meanwhile
		return peerAnswer{status: http.StatusConflict}
	}
	return peerAnswer{status: http.StatusServiceUnavailable}
}

// forwardUp lets the node of a connection handle an up, and returns the status of its answer.
func (s *Server) forwardUp(ctx context.Context, client netip.Prefix, node string, line, messages []byte) (status int) {
	if !s.asking.acquire(client) {
		return http.StatusServiceUnavailable
	}
	defer func() { s.asking.release(client, status) }()
	question := slices.Concat([]byte{upQuestion}, line, []byte("\n"), messages)
	return s.ask(ctx, node, question).status
}

// forwardDown answers a client that waits for events of a connection of another node.
func (s *Server) forwardDown(w http.ResponseWriter, req *http.Request, down downRequest) {
	node, status := s.ownerOf(down.secret)
	client := s.config.Client(req)
	if status == 0 && !s.asking.acquire(client) {
		status = http.StatusServiceUnavailable
	}
	if status != 0 {
		answer(w, status)
		return
	}
	defer func() { s.asking.release(client, status) }()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if status = s.passOn(w, req.WithContext(ctx), node, down); status != http.StatusOK {
		answer(w, status)
	}
}

// passOn sends the events of a connection of another node, or returns the status with which the request is refused.
func (s *Server) passOn(w http.ResponseWriter, req *http.Request, node string, down downRequest) (status int) {
	ctx, end := s.responses.begin(req.Context(), down.secret)
	if end == nil {
		return http.StatusServiceUnavailable
	}
	defer end()
	poll := peerPoll{Secret: down.Secret, Response: random.Uint64(), Begins: true}
	first := s.poll(ctx, node, poll, down.Ack, 0)
	if first.status != http.StatusOK {
		return first.status
	}
	out, err := s.newOutput(w, req.WithContext(ctx), down.Mode, down.wait())
	if err != nil || out.begin(ctx) != nil {
		return http.StatusOK
	}
	poll.Begins = false
	out.send(ctx, down.Ack, func(ctx context.Context, after uint64, wait time.Duration) (batch, bool) {
		next := first
		if first = (peerAnswer{}); next.status == 0 {
			next = s.poll(ctx, node, poll, after, wait)
		}
		return next.batch, next.status == http.StatusOK
	})
	return http.StatusOK
}

// poll asks for the events behind an ID. The wait is rounded up: without one, the other node would answer at once, and be asked
// again and again until the time has passed.
func (s *Server) poll(ctx context.Context, node string, poll peerPoll, after uint64, wait time.Duration) peerAnswer {
	poll.After, poll.WaitMs = after, (min(wait, ownerWait) + time.Millisecond - 1).Milliseconds()
	text, _ := jsonv2.Marshal(poll) // of strings and numbers
	return s.ask(ctx, node, append([]byte{downQuestion}, text...))
}
