package ask

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// This file answers what other nodes ask about the connections of this one.

const (
	// maxCalled bounds the connections of a user that are called on one node.
	maxCalled = 256

	// gatherTime is how long the first part of an answer waits for the outcomes of calls, so that a
	// client that answers soon takes one packet.
	gatherTime = 50 * time.Millisecond

	// maxAnswerPacketBytes bounds what waits for gatherTime, apart from the last message.
	maxAnswerPacketBytes = 256 << 10
)

// servedAsks are the calls to clients of this node that others have asked for.
type servedAsks struct {
	mu    sync.Mutex // no other lock is acquired under it
	open  map[servedKey]context.CancelCauseFunc
	calls int // to clients
}

// A servedKey identifies an ask among those of all nodes.
type servedKey struct {
	node   string
	number uint64
}

// begin adds an ask that calls some clients, and returns a context that ends with it. It reports
// false if the ask was received before. It returns an error if there are too many calls.
func (s *servedAsks) begin(key servedKey, calls, limit int) (ctx context.Context, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[key]; ok {
		return nil, false, nil
	}
	if n := s.calls + calls; n > limit {
		return nil, true, &Limit{Kind: limitConcurrency, Observed: int64(n), Limit: int64(limit)}
	}
	s.calls += calls
	ctx, cancel := context.WithCancelCause(context.Background())
	if s.open == nil {
		s.open = map[servedKey]context.CancelCauseFunc{}
	}
	s.open[key] = cancel
	return ctx, true, nil
}

// callEnded makes room for another call, before the caller learns that this one has ended.
func (s *servedAsks) callEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
}

// end removes an ask whose calls have ended.
func (s *servedAsks) end(key servedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[key](nil)
	if delete(s.open, key); len(s.open) == 0 {
		s.open = nil // a map keeps the memory of its largest size
	}
}

// abort cancels the calls of an ask.
func (s *servedAsks) abort(key servedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.open[key]; cancel != nil {
		cancel(errAskEnded)
	}
}

// nodeLeft cancels the calls for which a node has asked.
func (s *servedAsks) nodeLeft(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, cancel := range s.open {
		if key.node == node {
			cancel(errAskEnded)
		}
	}
}

// errAskEnded ends a call for whose answer no node waits.
var errAskEnded = &errors.Error{Code: errors.Canceled, Message: "the caller does not wait any more"}

// receiveAsk answers an ask about the given connections of this node.
func (n *Node) receiveAsk(a *receivedAsk, clients Clients) {
	key := servedKey{a.from, a.number}
	switch {
	case a.message == nil:
		n.answer(key, beginListing(a.number, connsOf(clients.First), clients.Total, true))
	case clients.Total == 0:
		n.answer(key, beginListing(a.number, nil, 0, false))
	case clients.Total > maxCalled:
		n.refuse(key, tooMany(clients.Total))
	default:
		ctx, isNew, err := n.served.begin(key, clients.Total, n.config.MaxOpen)
		if err != nil {
			n.refuse(key, err)
		} else if isNew {
			go n.serve(ctx, a, clients.First)
		}
	}
}

// tooMany returns the error for a user with too many connections on a node, none of which is called.
func tooMany(n int) error {
	return &Limit{Kind: limitConnections, Observed: int64(n), Limit: maxCalled}
}

// refuse answers that no client was called.
func (n *Node) refuse(key servedKey, err error) {
	refusal := beginListing(key.number, nil, 0, false)
	refusal.add(0, &Outcome{Err: err})
	n.answer(key, refusal)
}

// answer sends an answer or a part of it.
func (n *Node) answer(key servedKey, a answer) {
	_ = n.publish(key.node, a.bytes) // otherwise this node counts as one that has not answered
}

// serve makes the calls of an ask, and sends their outcomes.
func (n *Node) serve(ctx context.Context, a *receivedAsk, clients []Client) {
	key := servedKey{a.from, a.number}
	defer n.served.end(key)
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	calls := make(chan placedOutcome, len(clients))
	for i, c := range clients {
		go func() { calls <- placedOutcome{i + 1, n.outcomeOf(ctx, c, a.message)} }()
	}
	part := beginListing(a.number, connsOf(clients), len(clients), false)
	gathered := time.NewTimer(gatherTime)
	defer gathered.Stop()
	gathering := true
	for i := range clients {
		var call placedOutcome
		select {
		case call = <-calls:
		case <-gathered.C:
			n.answer(key, part)
			part, gathering = beginAnswer(a.number), false
			call = <-calls
		}
		n.served.callEnded()
		if call.outcome.Err != nil && ctx.Err() != nil {
			continue // the caller has ended this call, or does it now, at its deadline
		}
		part.add(call.place, &call.outcome)
		if !gathering || i == len(clients)-1 || len(part.bytes) > maxAnswerPacketBytes {
			n.answer(key, part)
			part = beginAnswer(a.number)
		}
	}
}

// A placedOutcome is that of the call to the client at a place, from 1.
type placedOutcome struct {
	place   int
	outcome Outcome
}

// connsOf returns the connections of clients.
func connsOf(clients []Client) []Conn {
	conns := make([]Conn, len(clients))
	for i, c := range clients {
		conns[i] = c.Describe()
	}
	return conns
}
