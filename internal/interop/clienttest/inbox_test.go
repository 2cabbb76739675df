package clienttest_test

import (
	"slices"
	"sync"
	"time"
)

// An inbox collects what happens, in order, until a test takes it.
type inbox[T any] struct {
	mu      sync.Mutex
	items   []T
	history []T           // what was added, also if it was taken
	changed chan struct{} // closed and replaced when an item is added
}

func newInbox[T any]() *inbox[T] { return &inbox[T]{changed: make(chan struct{})} }

func (b *inbox[T]) add(item T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items, b.history = append(b.items, item), append(b.history, item)
	close(b.changed)
	b.changed = make(chan struct{})
}

// take removes the first item that matches, and waits for it if there is none.
func (b *inbox[T]) take(match func(T) bool, limit time.Duration) (item T, ok bool) {
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
		}
	}
}

// all returns the items that were not taken.
func (b *inbox[T]) all() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.items)
}

// wait waits until what was added, also if it was taken, meets a condition, and returns it.
func (b *inbox[T]) wait(done func([]T) bool, limit time.Duration) []T {
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
		}
	}
}

// everything returns what was added, also if it was taken.
func (b *inbox[T]) everything() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.history)
}
