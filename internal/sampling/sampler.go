// Package sampling selects what is reported of what clients can cause often, in bounded memory.
package sampling

import (
	"hash/maphash"
	"sync"
	"time"
)

// maxKeys bounds the keys that pass per interval, and so the memory.
const maxKeys = 4096

// A Sampler selects what is reported: at most a number per key and interval. It is safe for
// concurrent use, and must be initialized.
type Sampler[K comparable] struct{ sampler }

// Init sets how many pass per key and interval.
func (s *Sampler[K]) Init(perInterval int, interval time.Duration) { s.init(perInterval, interval) }

// Passes reports whether something with this key is reported now.
func (s *Sampler[K]) Passes(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waitLocked(maphash.Comparable(s.seed, key), time.Now()) == 0
}

// A Counter is a [Sampler] that counts what does not pass.
type Counter[K comparable] struct {
	Sampler[K]

	counting sync.Mutex // before the lock of the Sampler
	missed   int64
}

// Passes reports whether something with this key is reported now, and if so, how often nothing was since the last time,
// for all keys.
func (c *Counter[K]) Passes(key K) (missed int64, ok bool) {
	c.counting.Lock()
	defer c.counting.Unlock()
	if !c.Sampler.Passes(key) {
		c.missed++
		return 0, false
	}
	missed, c.missed = c.missed, 0
	return missed, true
}

// A sampler is what a Sampler and Lines have in common. The fields below mu are guarded by it, as
// those of Lines.
type sampler struct {
	seed        maphash.Seed  // read-only
	interval    time.Duration // read-only
	perInterval int           // read-only

	mu        sync.Mutex
	current   map[uint64]sampledPeriod // by the hash of the key
	previous  map[uint64]sampledPeriod // of the time before currentAt
	currentAt time.Time                // when current was empty
}

// A sampledPeriod is the time in which n reports of a key have passed.
type sampledPeriod struct {
	began time.Time
	n     int
}

func (s *sampler) init(perInterval int, interval time.Duration) {
	s.seed, s.perInterval, s.interval = maphash.MakeSeed(), perInterval, interval
}

// waitLocked returns 0 if a report passes, and otherwise when the next one of its key may pass.
func (s *sampler) waitLocked(key uint64, now time.Time) time.Duration {
	s.rotateLocked(now)
	period, ok := s.current[key]
	if !ok {
		period, ok = s.previous[key]
	}
	if !ok || now.Sub(period.began) >= s.interval {
		period = sampledPeriod{began: now}
	}
	if period.n >= s.perInterval {
		return s.interval - now.Sub(period.began)
	}
	if _, ok := s.current[key]; !ok && len(s.current) >= maxKeys {
		return s.interval
	}
	period.n++
	s.current[key] = period
	return 0
}

// rotateLocked forgets the keys whose latest period has ended. All those in previous have when current is as
// old as a period.
func (s *sampler) rotateLocked(now time.Time) {
	if s.current != nil && now.Sub(s.currentAt) < s.interval {
		return
	}
	s.previous, s.current, s.currentAt = s.current, map[uint64]sampledPeriod{}, now
}
