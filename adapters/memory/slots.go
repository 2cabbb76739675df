package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// Slots are [ratelimit.Slots] in this process. A key costs memory only while it has
// places taken.
type Slots struct {
	most int64

	mu    sync.Mutex
	taken map[ratelimit.Key]int64
}

var _ ratelimit.Slots = (*Slots)(nil)

// NewSlots returns slots with so many places for each key, at least 1.
func NewSlots(most int64) *Slots {
	if most < 1 {
		panic(fmt.Sprintf("memory: NewSlots of %d; it must be at least 1", most))
	}
	return &Slots{most: most, taken: map[ratelimit.Key]int64{}}
}

// Acquire takes a place, if one is free. It ignores its context: it never waits.
func (s *Slots) Acquire(_ context.Context, key ratelimit.Key) (ratelimit.Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.taken[key]
	if taken >= s.most {
		return ratelimit.Slot{Taken: taken, Limit: s.most}, nil
	}
	s.taken[key]++
	release := sync.OnceFunc(func() { s.release(key) })
	return ratelimit.Slot{Release: release, Taken: taken + 1, Limit: s.most}, nil
}

func (s *Slots) release(key ratelimit.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[key]--; s.taken[key] == 0 {
		delete(s.taken, key)
	}
}
