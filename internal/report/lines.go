package report

import (
	"hash/maphash"
	"time"
)

// Lines select the lines of type L that are written, by their kinds. Lines that it suppresses are counted: the next
// line of their kind has their number. If there is none when the next one may be written, the first of
// them is written, so that no line is lost for good.
type Lines[K comparable, L any] struct {
	sampler

	pending map[uint64]*suppressedLines[L] // by the hash of the kind
	write   func(line L, suppressed int64) // read-only
}

// suppressedLines are n lines of one kind of which the first is kept.
type suppressedLines[L any] struct {
	first L
	n     int64
}

// Init sets how many lines of a kind are written per interval, and what writes them.
func (s *Lines[K, L]) Init(perInterval int, interval time.Duration, write func(line L, suppressed int64)) {
	s.init(perInterval, interval)
	s.pending, s.write = map[uint64]*suppressedLines[L]{}, write
}

// Add writes or suppresses a line that stands for n of its kind.
func (s *Lines[K, L]) Add(kind K, line L, n int64) {
	if suppressed, ok := s.sample(kind, line, n); ok {
		s.write(line, suppressed)
	}
}

// sample reports whether a line must be written, and how many were suppressed.
func (s *Lines[K, L]) sample(kind K, line L, n int64) (suppressed int64, ok bool) {
	key := maphash.Comparable(s.seed, kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, lines := s.waitLocked(key, time.Now()), s.pending[key]
	if wait == 0 {
		delete(s.pending, key)
		if lines != nil {
			n += lines.n
		}
		return n - 1, true
	}
	if lines == nil {
		lines = &suppressedLines[L]{first: line}
		s.pending[key] = lines
		time.AfterFunc(wait, func() { s.flush(key, lines) })
	}
	lines.n += n
	return 0, false
}

// flush writes one of the suppressed lines, unless a later line has counted them meanwhile.
func (s *Lines[K, L]) flush(key uint64, lines *suppressedLines[L]) {
	if s.takePending(key, lines) {
		s.write(lines.first, lines.n-1)
	}
}

func (s *Lines[K, L]) takePending(key uint64, lines *suppressedLines[L]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[key] != lines {
		return false
	}
	delete(s.pending, key)
	s.rotateLocked(time.Now())
	s.current[key] = sampledPeriod{time.Now(), 1}
	return true
}

// FlushAll writes one line for each kind of which lines are suppressed.
func (s *Lines[K, L]) FlushAll() {
	s.mu.Lock()
	pending := s.pending
	s.pending = map[uint64]*suppressedLines[L]{}
	s.mu.Unlock()
	for _, lines := range pending {
		s.write(lines.first, lines.n-1)
	}
}
