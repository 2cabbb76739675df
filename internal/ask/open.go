package ask

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"sync"
	"time"
)

// An ask is one question to some nodes.
type ask struct {
	node    *Node
	number  uint64
	details bool          // connections are listed, and not called
	wake    chan struct{} // of capacity 1: the caller has something to look at

	mu       sync.Mutex
	nodes    map[string]*askedNode // whose answer is not complete, by name
	aborted  []string              // nodes to notify that their answer is not needed any more
	outcomes []Outcome             // that the caller has not taken
	conns    []Conn                // those that are listed
	total    int                   // connections of the nodes that have listed them
}

// An askedNode has not answered completely.
type askedNode struct {
	listed bool
	conns  []string // the IDs of those that are called; "" for one with an outcome
	left   int      // those without an outcome
}

// everyNode accepts all nodes.
func everyNode(string) bool { return true }

// always gives all nodes an error, for endNodes.
func always(err error) func(node string, listed bool) error {
	return func(string, bool) error { return err }
}

// end removes an ask whose caller has left.
func (a *ask) end() {
	n := a.node
	n.mu.Lock()
	if delete(n.open, a.number); len(n.open) == 0 {
		n.open = nil // a map keeps the memory of its largest size
	}
	n.mu.Unlock()
	a.endNodes(always(errShutdown), true)
	a.take()
	packet := binary.AppendUvarint([]byte{askEnd}, a.number)
	for _, node := range a.aborted { // no other goroutine changes it now
		_ = a.node.publish(node, bytes.Clone(packet)) // otherwise the deadline ends the calls
	}
}

// awaitOutcomes iterates over the outcomes of all nodes until there are no more. When ctx is done,
// its cause is the outcome of those that are missing.
func (a *ask) awaitOutcomes(ctx context.Context) iter.Seq[*Outcome] {
	return func(yield func(*Outcome) bool) {
		silent := time.NewTimer(nodeWait)
		defer silent.Stop()
		for {
			outcomes, complete := a.take()
			for i := range outcomes {
				if !yield(&outcomes[i]) {
					return
				}
			}
			if complete {
				return
			}
			select {
			case <-a.wake:
			case <-silent.C:
				a.endSilent()
			case <-ctx.Done():
				// At the deadline, the nodes end their calls themselves.
				a.endNodes(always(context.Cause(ctx)), ctx.Err() == context.Canceled)
			}
		}
	}
}

// take returns the outcomes that were not taken, and whether no more follow.
func (a *ask) take() (outcomes []Outcome, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	outcomes, a.outcomes = a.outcomes, nil
	size := 0
	for i := range outcomes {
		size += len(outcomes[i].Message)
	}
	a.node.bytes.Add(int64(-size))
	return outcomes, len(a.nodes) == 0
}

// endSilent ends what was asked of nodes that have not said which connections they have.
func (a *ask) endSilent() {
	a.endNodes(func(node string, listed bool) error {
		if listed {
			return nil
		}
		return errNodeSilent(node)
	}, true)
}

// endNode ends what was asked of a node that does not answer.
func (a *ask) endNode(node string, err error) {
	a.endNodes(func(name string, _ bool) error {
		if name != node {
			return nil
		}
		return err
	}, false)
}

// endNodes gives the error that why returns for a node, unless it is nil, to its calls that have no
// outcome, or to the node if it has not listed its connections. If abort is set, the node will be
// notified.
func (a *ask) endNodes(why func(node string, listed bool) error, abort bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.nodes {
		err := why(name, n.listed)
		if err == nil {
			continue
		}
		delete(a.nodes, name)
		if abort && name != a.node.name {
			a.aborted = append(a.aborted, name)
		}
		if !n.listed {
			a.outcomes = append(a.outcomes, Outcome{Node: name, Err: err})
		}
		for _, connID := range n.conns {
			if connID != "" {
				a.outcomes = append(a.outcomes, Outcome{Node: name, ConnID: connID, Err: err})
			}
		}
	}
	a.signal()
}

// signal lets the caller look at what has changed.
func (a *ask) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // it has not looked since the last signal
	}
}

// receiveAnswer handles an answer of another node. A malformed rest is ignored.
func (n *Node) receiveAnswer(from string, packet []byte) {
	in := packetReader{rest: packet}
	a := n.find(in.uvarint())
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.nodes[from]
	if asked == nil {
		return
	}
	if in.byte() == 1 {
		a.readListingLocked(asked, from, &in)
	}
	for asked.listed && len(in.rest) > 0 {
		place, o := in.readOutcome()
		if in.malformed {
			break
		}
		a.addOutcomeLocked(asked, from, place, o)
	}
	a.finishLocked(asked, from)
}

// listOwn records the connections of this node, total of them, that are listed or called.
func (a *ask) listOwn(conns []Conn, total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := &askedNode{}
	a.nodes[a.node.name] = n
	a.listLocked(n, conns, total)
	a.finishLocked(n, a.node.name)
}

// addOwnError records that no connection of this node is called.
func (a *ask) addOwnError(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes = append(a.outcomes, Outcome{Node: a.node.name, Err: err})
	a.signal()
}

// addOwn records the outcome of a call to the connection of this node at a place, as
// addOutcomeLocked does.
func (a *ask) addOwn(place uint64, o Outcome) {
	node := a.node.name
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[node]; n != nil {
		a.addOutcomeLocked(n, node, place, o)
		a.finishLocked(n, node)
	}
}

// readListingLocked reads the connections that a node has.
func (a *ask) readListingLocked(n *askedNode, node string, in *packetReader) {
	total, count := in.uvarint(), in.uvarint()
	if in.malformed || n.listed {
		in.rest = nil
		return
	}
	var conns []Conn
	for range count {
		conns = append(conns, in.readConn(node, a.details))
		if in.malformed {
			return
		}
	}
	a.listLocked(n, conns, int(min(total, 1<<24))) // so that sums fit into 32 bits
}

// listLocked records the connections that a node has.
func (a *ask) listLocked(n *askedNode, conns []Conn, total int) {
	n.listed = true
	a.total += total
	if a.details {
		a.conns = append(a.conns, conns[:min(len(conns), MaxListed-len(a.conns))]...)
		return
	}
	for _, c := range conns {
		n.conns = append(n.conns, c.ConnID)
	}
	n.left = len(conns)
}

// addOutcomeLocked records the outcome of the call to the connection at a place, from 1, or of the
// node at place 0.
func (a *ask) addOutcomeLocked(n *askedNode, node string, place uint64, o Outcome) {
	o.Node = node
	switch {
	case place == 0:
		n.left = 0 // nothing was called
	case place > uint64(len(n.conns)) || n.conns[place-1] == "":
		return
	default:
		o.ConnID, n.conns[place-1] = n.conns[place-1], ""
		n.left--
	}
	if size := int64(len(o.Message)); a.node.bytes.Add(size) > maxAnswerBytes {
		a.node.bytes.Add(-size)
		o.Message, o.Err = nil, errManyAnswers
	}
	o.Message = bytes.Clone(o.Message)
	a.outcomes = append(a.outcomes, o)
}

// finishLocked removes a node whose answer is complete.
func (a *ask) finishLocked(n *askedNode, node string) {
	if n.listed && n.left == 0 {
		delete(a.nodes, node)
	}
	a.signal()
}
