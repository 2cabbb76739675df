package runs_test

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A simNode is the connection of a node to a simStore. Its calls are delayed, fail, and take effect though
// they seem to have failed, even much later, unless there was a failover. While the node is paused, nothing reaches it and nothing leaves
// it. A node that is killed is paused for ever.
type simNode struct {
	broker.Histories // the methods that runs do not use

	name   string
	store  *simStore
	reader *sequencer.Reader

	// The store's lock guards what follows.
	next    time.Time // when the next publication can arrive
	cut     time.Time // until then, publications are lost
	resumed chan struct{}
	held    []func() // what arrives at a paused node
	dead    chan struct{}

	mu         sync.Mutex
	sequencers map[string]*sequencer.Sequencer
}

func newSimNode(store *simStore, name string) *simNode {
	n := &simNode{name: name, store: store, sequencers: map[string]*sequencer.Sequencer{}, dead: make(chan struct{})}
	n.resumed = make(chan struct{})
	close(n.resumed)
	n.reader = sequencer.NewReader(n)
	store.mu.Lock()
	defer store.mu.Unlock()
	store.nodes = append(store.nodes, n)
	return n
}

// pause stops the node for a time.
func (n *simNode) pause(d time.Duration) {
	resumed := make(chan struct{})
	n.store.mu.Lock()
	n.resumed = resumed
	n.store.mu.Unlock()
	time.AfterFunc(d, func() {
		n.store.mu.Lock()
		held := n.held
		n.held = nil
		n.store.mu.Unlock()
		close(resumed)
		for _, f := range held {
			f()
		}
	})
}

func (n *simNode) isPaused() bool {
	select {
	case <-n.resumed:
		return false
	default:
		return true
	}
}

func (n *simNode) isDead() bool {
	select {
	case <-n.dead:
		return true
	default:
		return false
	}
}

// await waits until the node is not paused. It returns an error if it is dead.
func (n *simNode) await() error {
	n.store.mu.Lock()
	resumed := n.resumed
	n.store.mu.Unlock()
	select {
	case <-n.dead:
	case <-resumed:
	}
	if n.isDead() {
		return errDead
	}
	return nil
}

var errBroken = &errors.Error{Code: errors.Unavailable, Message: "the connection is broken"}

var errDead = &errors.Error{Code: errors.Unavailable, Message: "the node is dead"}

// call makes a call of the store. The error of a call that may have taken effect has the code unknown.
func (n *simNode) call(ctx context.Context, unknown errors.Code, f func() error) error {
	if err := n.await(); err != nil {
		return err
	}
	s := n.store
	s.mu.Lock()
	delay, answer := s.upTo(4*time.Millisecond), s.upTo(4*time.Millisecond)
	late := s.happens("call takes effect late", 10)
	lost := !late && s.happens("call lost", 10)
	unanswered := s.happens("answer lost", 10)
	switch {
	case s.happens("call delayed", 20):
		delay = s.upTo(3 * time.Second)
	case late:
		delay = s.upTo(12 * time.Second)
	}
	down, epochs := time.Until(s.down) > 0, s.epochs
	s.mu.Unlock()
	if down || lost {
		return errors.Errorf(errors.Unavailable, "the store cannot be reached")
	}
	done := make(chan error, 1)
	time.AfterFunc(delay, func() {
		s.mu.Lock()
		err := error(errBroken)
		if s.epochs == epochs { // a failover breaks connections
			err = f()
		}
		s.mu.Unlock()
		time.AfterFunc(answer, func() { done <- err })
	})
	var err error
	select {
	case err = <-done:
		if unanswered {
			err = errors.Errorf(unknown, "the answer of the store is lost")
		}
	case <-ctx.Done():
		err = &errors.Error{Code: unknown, Message: "the store has not answered", Err: context.Cause(ctx)}
	}
	if dead := n.await(); dead != nil {
		return dead
	}
	return err
}

// Append implements broker.Histories.
func (n *simNode) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	result := make(chan broker.Appended, 1)
	err := n.call(ctx, errors.OutcomeUnknown, func() error {
		stored, err := n.store.append(&a)
		result <- stored
		return err
	})
	if err != nil {
		return broker.Appended{}, err
	}
	return <-result, nil
}

// Read implements broker.Histories.
func (n *simNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	result := make(chan broker.Page, 1)
	err := n.call(ctx, errors.Unavailable, func() error {
		result <- n.store.read(&q)
		return nil
	})
	if err != nil {
		return broker.Page{}, err
	}
	return <-result, nil
}

// ReadAll reads each topic with Read.
func (n *simNode) ReadAll(ctx context.Context, b broker.Batch) (pages []broker.BatchPage, _ error) {
	for _, q := range b.Topics {
		page, err := n.Read(ctx, broker.Query{Topic: q.Topic, Retention: q.Retention, After: q.After, Limit: q.Limit})
		pages = append(pages, broker.BatchPage{Page: page, Err: err})
	}
	return pages, nil
}

// LoadValue implements broker.Histories.
func (n *simNode) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	result := make(chan broker.Value, 1)
	err := n.call(ctx, errors.Unavailable, func() error {
		result <- n.store.load(key)
		return nil
	})
	if err != nil {
		return broker.Value{}, err
	}
	return <-result, nil
}

// StoreValue implements broker.Histories.
func (n *simNode) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	result := make(chan uint64, 1)
	err := n.call(ctx, errors.OutcomeUnknown, func() error {
		stored, err := n.store.store(key, data, version, lifetime)
		result <- stored
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-result, nil
}

// Follow implements broker.Histories.
func (n *simNode) Follow(topic string) {
	time.AfterFunc(5*time.Millisecond, func() { n.deliver(func() { n.following(topic) }) })
}

// Unfollow implements broker.Histories.
func (n *simNode) Unfollow(string) {}

// follow is Host.Follow of the node.
func (n *simNode) follow(topic string, r broker.Retention, sink sequencer.Sink) *sequencer.Sequencer {
	s := sequencer.New(n.reader, topic, r, sink)
	n.mu.Lock()
	n.sequencers[topic] = s
	n.mu.Unlock()
	return s
}

// unfollow is Host.Unfollow of the node.
func (n *simNode) unfollow(topic string) {
	n.mu.Lock()
	s := n.sequencers[topic]
	delete(n.sequencers, topic)
	n.mu.Unlock()
	s.Close()
}

func (n *simNode) sequencer(topic string) *sequencer.Sequencer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sequencers[topic]
}

func (n *simNode) following(topic string) {
	if s := n.sequencer(topic); s != nil {
		s.Following()
	}
}

// deliver calls f, unless the node is dead, and when it is not paused.
func (n *simNode) deliver(f func()) {
	n.store.mu.Lock()
	if n.isPaused() {
		n.held = append(n.held, f)
		n.store.mu.Unlock()
		return
	}
	n.store.mu.Unlock()
	if !n.isDead() {
		f()
	}
}

// passOn delivers a publication after some time, and after those before it, or loses it. The store's lock
// must be held.
func (n *simNode) passOn(topic string, p broker.Publication) {
	switch {
	case time.Until(n.cut) > 0:
		return
	case n.store.happens("publications lost", 5):
		n.cutOff(n.store.upTo(time.Second))
		return
	}
	if at := time.Now().Add(n.store.upTo(10 * time.Millisecond)); at.After(n.next) {
		n.next = at
	} else {
		n.next = n.next.Add(time.Nanosecond)
	}
	time.AfterFunc(time.Until(n.next), func() {
		n.deliver(func() {
			if s := n.sequencer(topic); s != nil {
				s.Publish(p)
			}
		})
	})
}

// cutOff loses publications for a time; then the node follows its topics again. The store's lock must be held.
func (n *simNode) cutOff(d time.Duration) {
	until := time.Now().Add(d)
	n.cut = until
	time.AfterFunc(d, func() {
		n.store.mu.Lock()
		over := !n.cut.After(until)
		n.store.mu.Unlock()
		if !over {
			return
		}
		n.deliver(func() {
			n.mu.Lock()
			var topics []string
			for topic := range n.sequencers {
				topics = append(topics, topic)
			}
			n.mu.Unlock()
			for _, topic := range topics {
				n.following(topic)
			}
		})
	})
}
