package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Hub connects the nodes of one process to a [Store]. Its zero value has no nodes and an empty
// store. It is safe for concurrent use.
type Hub struct {
	Store Store

	mu        sync.RWMutex
	followers map[string]map[*Node]struct{}
}

// Connect adds a node.
func (h *Hub) Connect(handler broker.HistoryHandler) *Node {
	return &Node{hub: h, handler: handler.Complete(), topics: map[string]struct{}{}}
}

// publish passes a publication to the nodes that follow its topic. It is called under the topic's
// lock, so that each node queues publications in the order of their offsets.
func (h *Hub) publish(topic string, p broker.Publication) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for n := range h.followers[topic] {
		n.call(func() { n.handler.Published(topic, p) })
	}
}

// A Node uses the histories of its Hub. Its handler is called by its queue, so that a publisher waits
// for no node; what the handler has not handled yet waits in memory, without a bound.
type Node struct {
	hub     *Hub
	handler broker.HistoryHandler
	topics  map[string]struct{} // that it follows; guarded by the hub's lock
	queue   executor.FuncQueue

	open    sync.RWMutex // held for reading by calls that use the hub
	closed  bool         // guarded by open
	calling sync.Mutex   // held while a function of the handler runs
	ended   bool         // no function of the handler is called any more; guarded by calling
}

// call queues a call of the handler.
func (n *Node) call(f func()) {
	n.queue.Add(func() {
		n.calling.Lock()
		defer n.calling.Unlock()
		if !n.ended {
			f()
		}
	})
}

var _ broker.Histories = (*Node)(nil)

// Append stores and publishes p.
func (n *Node) Append(ctx context.Context, p broker.Append) (broker.Appended, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "append to topic", p.Topic); err != nil {
		return broker.Appended{}, err
	}
	return n.hub.Store.Append(p, n.hub.publish)
}

// Read returns stored publications of a topic and its current position.
func (n *Node) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "read topic", q.Topic); err != nil {
		return broker.Page{}, err
	}
	return n.hub.Store.Read(q), nil
}

// ReadAll returns a page of each of several topics.
func (n *Node) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	first := ""
	if len(b.Topics) > 0 {
		first = b.Topics[0].Topic
	}
	if err := n.checkLocked(ctx, "read topics that begin with", first); err != nil {
		return nil, err
	}
	return n.hub.Store.ReadAll(b), nil
}

// ReadState returns a part of the current state of a topic.
func (n *Node) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "read the state of topic", q.Topic); err != nil {
		return broker.StatePart{}, err
	}
	return n.hub.Store.ReadState(q), nil
}

// LoadValue returns a value.
func (n *Node) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "load value", key); err != nil {
		return broker.Value{}, err
	}
	return n.hub.Store.LoadValue(key), nil
}

// StoreValue stores a value.
func (n *Node) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "store value", key); err != nil {
		return 0, err
	}
	return n.hub.Store.StoreValue(key, data, version, lifetime)
}

// PatchValue changes a part of a value.
func (n *Node) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	n.open.RLock()
	defer n.open.RUnlock()
	if err := n.checkLocked(ctx, "patch value", key); err != nil {
		return 0, err
	}
	return n.hub.Store.PatchValue(key, p, version, lifetime)
}

// checkLocked returns an error if a call must do nothing.
func (n *Node) checkLocked(ctx context.Context, operation, name string) error {
	if n.closed {
		return errors.Errorf(errors.Unavailable, "cannot %s %q: the node is closed", operation, name)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cannot %s %q: %w", operation, name, err)
	}
	return nil
}

// Follow requests the publications of a topic. The call of Following is queued under the hub's lock,
// before every publication that is stored later.
func (n *Node) Follow(topic string) {
	n.open.RLock()
	defer n.open.RUnlock()
	if n.closed {
		return
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.topics[topic] = struct{}{}
	if n.hub.followers == nil {
		n.hub.followers = map[string]map[*Node]struct{}{}
	}
	if n.hub.followers[topic] == nil {
		n.hub.followers[topic] = map[*Node]struct{}{}
	}
	n.hub.followers[topic][n] = struct{}{}
	n.call(func() { n.handler.Following(topic) })
}

// Unfollow undoes Follow.
func (n *Node) Unfollow(topic string) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.unfollowLocked(topic)
}

func (n *Node) unfollowLocked(topic string) {
	delete(n.topics, topic)
	followers := n.hub.followers[topic]
	if delete(followers, n); len(followers) == 0 {
		delete(n.hub.followers, topic)
	}
}

// Close waits for calls that are in progress, also for one of the handler. Afterwards nothing is
// stored, and no function of the handler is called.
func (n *Node) Close(context.Context) error {
	n.end()
	n.unfollowAll()
	n.calling.Lock()
	defer n.calling.Unlock()
	n.ended = true
	return nil
}

func (n *Node) end() {
	n.open.Lock()
	defer n.open.Unlock()
	n.closed = true
}

func (n *Node) unfollowAll() {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for topic := range n.topics {
		n.unfollowLocked(topic)
	}
}
