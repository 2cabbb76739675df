package brokertest

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
)

// A faultyNode is a node of a FaultyStore, whose lock guards it.
type faultyNode struct {
	broker.Node // for what has no history

	store   *FaultyStore
	host    *faultyHost
	handler broker.HistoryCallbacks
	gate    executor.Gate // calls the handler

	up         bool // the connection to the store works
	connection int  // counts its interruptions
	calls      []*faultyCall
	appends    map[string]*faultyLine // by topic
	commands   faultyLine             // in which the store processes Follow and Unfollow
	subs       map[string]*faultySub  // by topic
	held       []func()               // what has arrived while the host was paused

	crashed bool
	closing bool          // no call begins any more
	closed  bool          // nothing is processed any more
	drained chan struct{} // closed by signalLocked, if Close waits for calls
}

// Append stores and publishes p.
func (n *faultyNode) Append(ctx context.Context, p broker.Append) (broker.Appended, error) {
	if err := p.Durability.Check(); err != nil {
		return broker.Appended{}, err
	}
	c := &faultyCall{what: "append to topic " + strconv.Quote(p.Topic), isWrite: true, topic: p.Topic, line: n.lineOf(p.Topic), durable: p.Durability != broker.Durability{}}
	return answer(ctx, n, c, func() (broker.Appended, error) {
		result, err := n.store.data.append(&p)
		if err == nil && !result.Duplicate {
			n.store.publishLocked(p.Topic)
		}
		return result, err
	})
}

// answer returns what the store returns for a call. The store may process it when its caller has an
// error already, which therefore returns another variable.
func answer[T any](ctx context.Context, n *faultyNode, c *faultyCall, process func() (T, error)) (T, error) {
	var result, none T
	c.process = func() (err error) {
		result, err = process()
		return err
	}
	if err := n.do(ctx, c); err != nil {
		return none, err
	}
	return result, nil
}

// lineOf returns the line of a topic, in which Appends are processed in their order.
func (n *faultyNode) lineOf(topic string) *faultyLine {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	l := n.appends[topic]
	if l == nil {
		l = &faultyLine{}
		n.appends[topic] = l
	}
	return l
}

// Read returns stored publications of a topic and its current position.
func (n *faultyNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	return answer(ctx, n, newRead("read topic "+strconv.Quote(q.Topic)), func() (broker.Page, error) {
		n.store.noteEarlyLocked("read before answer", q.Topic)
		return n.store.data.read(q), nil
	})
}

// ReadState returns a part of the current state of a topic.
func (n *faultyNode) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	return answer(ctx, n, newRead("read the state of topic "+strconv.Quote(q.Topic)), func() (broker.StatePart, error) {
		return n.store.data.readState(q), nil
	})
}

// LoadValue returns a value.
func (n *faultyNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	return answer(ctx, n, newRead("load value "+strconv.Quote(key)), func() (broker.Value, error) {
		return n.store.data.loadValue(key), nil
	})
}

func newRead(what string) *faultyCall { return &faultyCall{what: what, line: &faultyLine{}} }

// ReadAll returns a page of each of several topics. They are read in a random order, at several
// moments.
func (n *faultyNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	batch := newFaultyBatch(b)
	c := newRead("read " + strconv.Itoa(len(b.Topics)) + " topics")
	c.isComplete = batch.isComplete
	return answer(ctx, n, c, func() ([]broker.BatchPage, error) {
		n.store.readSomeLocked(batch)
		return batch.pages, nil
	})
}

// StoreValue stores a value.
func (n *faultyNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	data = bytes.Clone(data)
	return n.changeValue(ctx, key, func([]byte) ([]byte, bool) { return data, true }, version, lifetime)
}

// PatchValue changes a part of a value.
func (n *faultyNode) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	p.Data = bytes.Clone(p.Data)
	return n.changeValue(ctx, key, p.Apply, version, lifetime)
}

func (n *faultyNode) changeValue(ctx context.Context, key string, change func([]byte) ([]byte, bool), version uint64, lifetime time.Duration) (uint64, error) {
	c := &faultyCall{what: "store value " + strconv.Quote(key), isWrite: true, line: &faultyLine{}}
	return answer(ctx, n, c, func() (uint64, error) {
		return n.store.data.changeValue(key, change, version, lifetime)
	})
}

// Close waits for the calls that are on their way, as long as ctx permits, and closes the node of
// the other broker.
func (n *faultyNode) Close(ctx context.Context) error {
	select {
	case <-n.drain():
	case <-ctx.Done():
	}
	err := n.Node.Close(ctx)
	n.end()
	n.gate.Close()
	return err
}

// drain lets no call begin any more, ends those that hang, and returns a channel that is closed
// when none waits.
func (n *faultyNode) drain() <-chan struct{} {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	n.closing = true
	if n.drained == nil {
		n.drained = make(chan struct{})
	}
	for _, c := range slices.Clone(n.calls) {
		if c.hangs {
			s.finishLocked(c, s.brokenLocked(c))
		}
	}
	n.signalLocked()
	return n.drained
}

func (n *faultyNode) signalLocked() {
	if n.drained == nil || len(n.calls) > 0 {
		return
	}
	select {
	case <-n.drained:
	default:
		close(n.drained)
	}
}

// end ends the calls that wait, and removes the node.
func (n *faultyNode) end() {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	n.closed = true
	n.removeLocked()
	for _, c := range slices.Clone(n.calls) {
		c.dropped = !c.processed
		s.finishLocked(c, s.brokenLocked(c))
	}
}

func (n *faultyNode) removeLocked() {
	n.store.nodes = slices.DeleteFunc(n.store.nodes, func(other *faultyNode) bool { return other == n })
	n.subs, n.held = map[string]*faultySub{}, nil
}

var _ broker.HistoryNode = (*faultyNode)(nil)
