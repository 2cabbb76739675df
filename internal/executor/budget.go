package executor

import (
	"sync"
	"sync/atomic"
)

// A ByteBudget bounds the bytes of jobs that wait behind other jobs, in all queues that
// share it, and what else is added. The first job in a queue is not counted, so that a queue with
// one job at a time costs nothing and never waits for other queues. MaxBytes must be set before use.
type ByteBudget struct {
	MaxBytes int64

	used atomic.Int64

	mu    sync.Mutex
	freed chan struct{} // closed when used falls below MaxBytes; nil if nothing waits for that
}

func (b *ByteBudget) exceeded() bool { return b.used.Load() >= b.MaxBytes }

// Add counts n bytes, even if they exceed the budget.
func (b *ByteBudget) Add(n int64) { b.used.Add(n) }

// TryAdd counts n bytes, unless the budget is exceeded. The last bytes that are added may exceed it.
func (b *ByteBudget) TryAdd(n int64) bool {
	for {
		used := b.used.Load()
		if used >= b.MaxBytes {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Remove undoes Add or TryAdd.
func (b *ByteBudget) Remove(n int64) {
	if n == 0 {
		return
	}
	after := b.used.Add(-n)
	if before := after + n; before < b.MaxBytes || after >= b.MaxBytes {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Available returns a channel that is closed when the budget is not exceeded.
func (b *ByteBudget) Available() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	freed := b.freed
	if !b.exceeded() { // Remove may have looked for the channel before it was there
		close(freed)
		b.freed = nil
	}
	return freed
}
