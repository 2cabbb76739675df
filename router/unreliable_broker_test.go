package router_test

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// How the values of a store fail.
const (
	storeWorks   = iota
	storeAway    // calls fail
	storeForgets // changes are made, but their outcome is unknown
	storeLoses   // changes are not made, and their outcome is unknown
	storeHangs   // calls wait until their context is done
	storeSlow    // changes take a second
	storeKeeps   // values expire too late: its clock may differ
)

var errAway = errors.New("the store is away")

// An unreliableBroker connects nodes to a shared broker, and fails as its fields say. Each node of a
// test that fails by itself has its own.
type unreliableBroker struct {
	*memory.Broker

	store  atomic.Int32 // how values fail
	silent atomic.Bool  // packets to other nodes are lost
	drop   atomic.Bool  // publications of the store do not arrive
	away   atomic.Bool  // histories and states cannot be read
	slow   atomic.Bool  // reads wait
	ahead  atomic.Int32 // how many reads of a state have a position that no node reaches
	later  atomic.Int64 // nanoseconds that Follow takes

	before atomic.Pointer[func()] // called before the next change of a value
	append func(context.Context, broker.Append, broker.HistoryNode) (broker.Appended, error)

	changes  atomic.Int64 // of values
	failures atomic.Int64 // calls that failed because the store was away or hung
	written  atomic.Int64 // bytes of values
	reads    readCount

	node broker.HistoryNode // the latest

	mu        sync.Mutex
	cut       bool // from the store and from other nodes
	followed  map[string]bool
	following func(topic string)
	late      map[string]bool // nodes whose changes of presence are late
	wait      []func()        // these changes
}

// A readCount counts what is read of histories and states.
type readCount struct {
	mu     sync.Mutex
	counts readCounts
}

type readCounts struct {
	reads, batches, publications int
	parts, bytes, longest        int64 // of states
}

func (c *readCount) count(f func(*readCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

// all returns the counts until now.
func (c *readCount) all() (counts readCounts) {
	c.count(func(now *readCounts) { counts = *now })
	return counts
}

func (c *readCount) reset() { c.count(func(counts *readCounts) { *counts = readCounts{} }) }

func unreliable() *unreliableBroker { return &unreliableBroker{Broker: memory.NewBroker()} }

// ConnectHistory adds a node.
func (b *unreliableBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	receive, changed, published, following := h.Receive, h.PresenceChanged, hh.Published, hh.Following
	h.Receive = func(topic, node string, packet []byte) {
		if !b.isCut() {
			receive(topic, node, packet)
		}
	}
	h.PresenceChanged = func(topic string, m broker.Member, joined bool) {
		if !b.isLate(m.Node, func() { changed(topic, m, joined) }) {
			changed(topic, m, joined)
		}
	}
	hh.Published = func(topic string, p broker.Publication) {
		if !b.drop.Load() && !b.isCut() {
			published(topic, p)
		}
	}
	hh.Following = func(topic string) {
		if !b.isCut() {
			following(topic)
		}
	}
	node := b.Broker.ConnectHistory(h, hh)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.node, b.following, b.followed = node, following, map[string]bool{}
	return &unreliableNode{node, b}
}

func (b *unreliableBroker) isCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}

// setCut cuts the node off, or ends that: what the broker has passed on meanwhile is lost, as by a
// connection that broke.
func (b *unreliableBroker) setCut(cut bool) {
	b.mu.Lock()
	b.cut = cut
	topics := maps.Clone(b.followed)
	b.mu.Unlock()
	for topic := range topics {
		if !cut {
			b.following(topic)
		}
	}
	synctest.Wait()
}

// delay makes what this node learns of the members of another one late, until catchUp.
func (b *unreliableBroker) delay(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = map[string]bool{node: true}
}

func (b *unreliableBroker) isLate(node string, change func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late[node] {
		b.wait = append(b.wait, change)
	}
	return b.late[node]
}

func (b *unreliableBroker) catchUp() {
	b.mu.Lock()
	late := b.wait
	b.wait, b.late = nil, nil
	b.mu.Unlock()
	for _, change := range late {
		change()
	}
}

type unreliableNode struct {
	broker.HistoryNode

	broker *unreliableBroker
}

func (n *unreliableNode) Publish(topic string, packet []byte) error {
	if n.broker.silent.Load() || n.broker.isCut() {
		return nil
	}
	return n.HistoryNode.Publish(topic, packet)
}

func (n *unreliableNode) Follow(topic string) {
	n.broker.mu.Lock()
	n.broker.followed[topic] = true
	n.broker.mu.Unlock()
	if d := n.broker.later.Load(); d > 0 {
		time.AfterFunc(time.Duration(d), func() { n.HistoryNode.Follow(topic) })
		return
	}
	n.HistoryNode.Follow(topic)
}

func (n *unreliableNode) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	if n.broker.isCut() {
		return broker.Appended{}, errAway
	}
	if n.broker.append != nil {
		return n.broker.append(ctx, a, n.HistoryNode)
	}
	return n.HistoryNode.Append(ctx, a)
}

// readable waits while reads are slow, and fails while the store is away.
func (n *unreliableNode) readable(ctx context.Context) error {
	for n.broker.slow.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n.broker.away.Load() || n.broker.isCut() {
		return errAway
	}
	return nil
}

func (n *unreliableNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	if err := n.readable(ctx); err != nil {
		return broker.Page{}, err
	}
	page, err := n.HistoryNode.Read(ctx, q)
	n.broker.reads.count(func(c *readCounts) { c.reads, c.publications = c.reads+1, c.publications+len(page.Publications) })
	return page, err
}

func (n *unreliableNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	if err := n.readable(ctx); err != nil {
		return nil, err
	}
	pages, err := n.HistoryNode.ReadAll(ctx, b)
	n.broker.reads.count(func(c *readCounts) {
		c.batches++
		for _, page := range pages {
			c.publications += len(page.Publications)
		}
	})
	return pages, err
}

func (n *unreliableNode) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	if err := n.readable(ctx); err != nil {
		return broker.StatePart{}, err
	}
	part, err := n.HistoryNode.ReadState(ctx, q)
	bytes := int64(0)
	for _, p := range part.Publications {
		bytes += int64(len(p.Packet) + len(p.StateKey))
	}
	n.broker.reads.count(func(c *readCounts) {
		c.parts, c.bytes, c.longest = c.parts+1, c.bytes+bytes, max(c.longest, bytes)
	})
	if n.broker.ahead.Add(-1) >= 0 {
		part.Position.Offset += 100
	}
	return part, err
}

func (n *unreliableNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := n.fail(ctx); err != nil {
		return broker.Value{}, err
	}
	return n.HistoryNode.LoadValue(ctx, key)
}

func (n *unreliableNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	n.broker.written.Add(int64(len(data)))
	return n.change(ctx, lifetime, func(lifetime time.Duration) (uint64, error) {
		return n.HistoryNode.StoreValue(ctx, key, data, version, lifetime)
	})
}

func (n *unreliableNode) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	n.broker.written.Add(int64(len(p.Data)))
	return n.change(ctx, lifetime, func(lifetime time.Duration) (uint64, error) {
		return n.HistoryNode.PatchValue(ctx, key, p, version, lifetime)
	})
}

// change calls store, unless the store is away.
func (n *unreliableNode) change(ctx context.Context, lifetime time.Duration, store func(lifetime time.Duration) (uint64, error)) (uint64, error) {
	if f := n.broker.before.Swap(nil); f != nil {
		(*f)()
	}
	n.broker.changes.Add(1)
	switch n.broker.store.Load() {
	case storeForgets:
		_, _ = store(lifetime)
		return 0, errors.Errorf(errors.OutcomeUnknown, "the connection broke")
	case storeSlow:
		time.Sleep(time.Second)
	case storeKeeps:
		if lifetime > 0 {
			lifetime += time.Hour
		}
	case storeLoses:
		return 0, errors.Errorf(errors.OutcomeUnknown, "the connection broke")
	}
	if err := n.fail(ctx); err != nil {
		return 0, err
	}
	return store(lifetime)
}

func (n *unreliableNode) fail(ctx context.Context) error {
	switch mode := n.broker.store.Load(); {
	case mode == storeAway || n.broker.isCut():
		n.broker.failures.Add(1)
		return errAway
	case mode == storeHangs:
		n.broker.failures.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
