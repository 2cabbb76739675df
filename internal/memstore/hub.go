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
func (h *Hub) Connect(handler broker.HistoryCallbacks) *Node {
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

// A Node uses the histories of its Hub. Its handler is called by its queue, so that a publisher
// waits for no node; what the handler has not handled yet waits in memory, without a bound.
type Node struct {
	hub     *Hub
	handler broker.HistoryCallbacks
	topics  map[string]struct{} // that it follows; guarded by the hub's lock
	queue   executor.FuncQueue

	use      executor.Gate // calls what uses the hub
	handling executor.Gate // calls the handler, on the queue
}

var _ broker.Histories = (*Node)(nil)

// call queues a call of the handler.
func (n *Node) call(f func()) {
	n.queue.Add(func() { n.handling.Do(f) })
}

// Append stores and publishes p.
func (n *Node) Append(ctx context.Context, p broker.Append) (broker.Appended, error) {
	return useHub(ctx, n, "append to topic", p.Topic, func() (broker.Appended, error) {
		return n.hub.Store.Append(p, n.hub.publish)
	})
}

// Read returns stored publications of a topic and its current position.
func (n *Node) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	return useHub(ctx, n, "read topic", q.Topic, func() (broker.Page, error) { return n.hub.Store.Read(q), nil })
}

// ReadAll returns a page of each of several topics.
func (n *Node) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	first := ""
	if len(b.Topics) > 0 {
		first = b.Topics[0].Topic
	}
	return useHub(ctx, n, "read topics that begin with", first, func() ([]broker.BatchPage, error) {
		return n.hub.Store.ReadAll(b), nil
	})
}

// ReadState returns a part of the current state of a topic.
func (n *Node) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	return useHub(ctx, n, "read the state of topic", q.Topic, func() (broker.StatePart, error) {
		return n.hub.Store.ReadState(q), nil
	})
}

// LoadValue returns a value.
func (n *Node) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	return useHub(ctx, n, "load value", key, func() (broker.Value, error) { return n.hub.Store.LoadValue(key), nil })
}

// StoreValue stores a value.
func (n *Node) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return useHub(ctx, n, "store value", key, func() (uint64, error) {
		return n.hub.Store.StoreValue(key, data, version, lifetime)
	})
}

// PatchValue changes a part of a value.
func (n *Node) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return useHub(ctx, n, "patch value", key, func() (uint64, error) {
		return n.hub.Store.PatchValue(key, p, version, lifetime)
	})
}

// useHub calls f, or returns an error if the node is closed or ctx is done.
func useHub[T any](ctx context.Context, n *Node, operation, name string, f func() (T, error)) (result T, err error) {
	open := n.use.Do(func() {
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("cannot %s %q: %w", operation, name, err)
			return
		}
		result, err = f()
	})
	if !open {
		return result, errors.Errorf(errors.Unavailable, "cannot %s %q: the node is closed", operation, name)
	}
	return result, err
}

// Follow requests the publications of a topic. The call of Following is queued under the hub's
// lock, before every publication that is stored later.
func (n *Node) Follow(topic string) {
	n.use.Do(func() { n.hub.follow(topic, n) })
}

func (h *Hub) follow(topic string, n *Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.topics[topic] = struct{}{}
	if h.followers == nil {
		h.followers = map[string]map[*Node]struct{}{}
	}
	if h.followers[topic] == nil {
		h.followers[topic] = map[*Node]struct{}{}
	}
	h.followers[topic][n] = struct{}{}
	n.call(func() { n.handler.Following(topic) })
}

// Unfollow undoes Follow.
func (n *Node) Unfollow(topic string) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.hub.unfollowLocked(topic, n)
}

func (h *Hub) unfollowLocked(topic string, n *Node) {
	delete(n.topics, topic)
	followers := h.followers[topic]
	if delete(followers, n); len(followers) == 0 {
		delete(h.followers, topic)
	}
}

// Close waits for calls that are in progress, also for one of the handler. Afterwards nothing is
// stored, and no function of the handler is called.
func (n *Node) Close(context.Context) error {
	n.use.Close()
	n.unfollowAll()
	n.handling.Close()
	return nil
}

func (n *Node) unfollowAll() {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for topic := range n.topics {
		n.hub.unfollowLocked(topic, n)
	}
}
