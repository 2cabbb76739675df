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
	handler broker.HistoryHandler
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
func (n *faultyNode) Append(ctx context.Context, p broker.Append) (result broker.Appended, err error) {
	if err := p.Durability.Check(); err != nil {
		return broker.Appended{}, err
	}
	c := &faultyCall{what: "append to topic " + strconv.Quote(p.Topic), isWrite: true, topic: p.Topic, line: n.lineOf(p.Topic), durable: p.Durability != broker.Durability{}}
	c.process = func() (err error) {
		if result, err = n.store.data.append(&p); err == nil && !result.Duplicate {
			n.store.publishLocked(p.Topic)
		}
		return err
	}
	if err := n.do(ctx, c); err != nil {
		return broker.Appended{}, err
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
func (n *faultyNode) Read(ctx context.Context, q broker.Query) (page broker.Page, err error) {
	err = n.read(ctx, "read topic "+strconv.Quote(q.Topic), func() {
		n.store.noteEarlyLocked("read before answer", q.Topic)
		page = n.store.data.read(q)
	})
	if err != nil {
		return broker.Page{}, err
	}
	return page, nil
}

// ReadState returns a part of the current state of a topic.
func (n *faultyNode) ReadState(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
	err = n.read(ctx, "read the state of topic "+strconv.Quote(q.Topic), func() { part = n.store.data.readState(q) })
	if err != nil {
		return broker.StatePart{}, err
	}
	return part, nil
}

// LoadValue returns a value.
func (n *faultyNode) LoadValue(ctx context.Context, key string) (value broker.Value, err error) {
	err = n.read(ctx, "load value "+strconv.Quote(key), func() { value = n.store.data.loadValue(key) })
	if err != nil {
		return broker.Value{}, err
	}
	return value, nil
}

func (n *faultyNode) read(ctx context.Context, what string, f func()) error {
	return n.do(ctx, &faultyCall{what: what, line: &faultyLine{}, process: func() error {
		f()
		return nil
	}})
}

// ReadAll returns a page of each of several topics. They are read in a random order, at several
// moments.
func (n *faultyNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	batch := newFaultyBatch(b)
	c := &faultyCall{what: "read " + strconv.Itoa(len(b.Topics)) + " topics", line: &faultyLine{}, isComplete: batch.isComplete}
	c.process = func() error {
		n.store.readSomeLocked(batch)
		return nil
	}
	if err := n.do(ctx, c); err != nil {
		return nil, err
	}
	return batch.pages, nil
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

func (n *faultyNode) changeValue(ctx context.Context, key string, change func([]byte) ([]byte, bool), version uint64, lifetime time.Duration) (newVersion uint64, err error) {
	c := &faultyCall{what: "store value " + strconv.Quote(key), isWrite: true, line: &faultyLine{}}
	c.process = func() (err error) {
		newVersion, err = n.store.data.changeValue(key, change, version, lifetime)
		return err
	}
	if err := n.do(ctx, c); err != nil {
		return 0, err
	}
	return newVersion, nil
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
