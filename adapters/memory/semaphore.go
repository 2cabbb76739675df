package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/limit"
)

// A Semaphore is a [limit.Semaphore] in this process. A key uses memory only while it has
// permits in use. It is safe for concurrent use.
type Semaphore struct {
	permits int64 // per key

	mu    sync.Mutex
	inUse map[limit.Key]int64
}

var _ limit.Semaphore = (*Semaphore)(nil)

// NewSemaphore returns a semaphore with that many permits per key, at least 1. It panics if
// permits is less.
func NewSemaphore(permits int64) *Semaphore {
	if permits < 1 {
		panic(fmt.Sprintf("memory: NewSemaphore with %d permits; it must be at least 1", permits))
	}
	return &Semaphore{permits: permits, inUse: map[limit.Key]int64{}}
}

// Acquire takes a permit if one is free. It ignores its context, because it never waits.
func (s *Semaphore) Acquire(_ context.Context, key limit.Key) (limit.Permit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inUse := s.inUse[key]
	if inUse >= s.permits {
		return limit.Permit{InUse: inUse, Limit: s.permits}, nil
	}
	s.inUse[key]++
	release := sync.OnceFunc(func() { s.release(key) })
	return limit.Permit{Release: release, InUse: inUse + 1, Limit: s.permits}, nil
}

func (s *Semaphore) release(key limit.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[key]--; s.inUse[key] == 0 {
		delete(s.inUse, key)
	}
}
