package conformance

import (
	"slices"
	"sync"
	"time"
)

// An Inbox collects what happens, in order, until a scenario takes it.
type Inbox[T any] struct {
	mu      sync.Mutex
	items   []T
	history []T           // what was added, even if it was taken
	changed chan struct{} // closed and replaced when an item is added
}

// NewInbox returns an empty Inbox.
func NewInbox[T any]() *Inbox[T] { return &Inbox[T]{changed: make(chan struct{})} }

// Add adds an item, and returns how many were added so far.
func (b *Inbox[T]) Add(item T) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items, b.history = append(b.items, item), append(b.history, item)
	close(b.changed)
	b.changed = make(chan struct{})
	return len(b.history)
}

// Take removes the first item that matches. If there is none, it waits for one until the limit has passed, or stop is closed, which
// may be nil.
func (b *Inbox[T]) Take(match func(T) bool, limit time.Duration, stop <-chan struct{}) (item T, ok bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		b.mu.Lock()
		i := slices.IndexFunc(b.items, match)
		if i >= 0 {
			item = b.items[i]
			b.items = slices.Delete(b.items, i, i+1)
			b.mu.Unlock()
			return item, true
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return item, false
		case <-stop:
			return item, false
		}
	}
}

// Wait waits until what was added, even if it was taken, meets a condition, the limit has passed, or stop is closed. It returns what was
// added.
func (b *Inbox[T]) Wait(done func([]T) bool, limit time.Duration, stop <-chan struct{}) []T {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		b.mu.Lock()
		all, changed := slices.Clone(b.history), b.changed
		b.mu.Unlock()
		if done(all) {
			return all
		}
		select {
		case <-changed:
		case <-timer.C:
			return all
		case <-stop:
			return all
		}
	}
}

// Waiting returns the items that were not taken.
func (b *Inbox[T]) Waiting() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.items)
}

// All returns what was added, even if it was taken.
func (b *Inbox[T]) All() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.history)
}
