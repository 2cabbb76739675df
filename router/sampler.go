package router

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"time"
)

// maxSampledKeys bounds the keys that pass per interval, and so the memory of a sampler.
const maxSampledKeys = 4096

// A sampler selects what is reported: at most perInterval per key and interval. The fields below mu
// are guarded by it, as those of the types that embed a sampler.
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

// wait returns 0 if a report passes, and otherwise when the next one of its key may pass. It must be
// called with mu held.
func (s *sampler) wait(key uint64, now time.Time) time.Duration {
	s.rotate(now)
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
	if _, ok := s.current[key]; !ok && len(s.current) >= maxSampledKeys {
		return s.interval
	}
	period.n++
	s.current[key] = period
	return 0
}

// rotate forgets the keys whose latest period has ended. All those in previous have when current is as
// old as a period.
func (s *sampler) rotate(now time.Time) {
	if s.current != nil && now.Sub(s.currentAt) < s.interval {
		return
	}
	s.previous, s.current, s.currentAt = s.current, map[uint64]sampledPeriod{}, now
}

// A logLine is a line of the log.
type logLine struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// A logSampler selects the lines that are written. Lines that it suppresses are counted: the next
// line of their kind has their number. If there is none when the next one may be written, the first of
// them is written, so that no line is lost for good.
type logSampler struct {
	sampler

	pending map[uint64]*suppressedLines          // by the hash of the kind
	write   func(line logLine, suppressed int64) // read-only
}

// suppressedLines are n lines of one kind of which the first is kept.
type suppressedLines struct {
	first logLine
	n     int64
}

func (s *logSampler) init(perInterval int, interval time.Duration, write func(logLine, int64)) {
	s.sampler.init(perInterval, interval)
	s.pending, s.write = map[uint64]*suppressedLines{}, write
}

// log writes or suppresses a line that stands for n of its kind.
func (s *logSampler) log(kind logKind, line logLine, n int64) {
	if suppressed, ok := s.sample(kind, line, n); ok {
		s.write(line, suppressed)
	}
}

// sample reports whether a line must be written, and how many were suppressed.
func (s *logSampler) sample(kind logKind, line logLine, n int64) (suppressed int64, ok bool) {
	key := maphash.Comparable(s.seed, kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, lines := s.wait(key, time.Now()), s.pending[key]
	if wait == 0 {
		delete(s.pending, key)
		if lines != nil {
			n += lines.n
		}
		return n - 1, true
	}
	if lines == nil {
		lines = &suppressedLines{first: line}
		s.pending[key] = lines
		time.AfterFunc(wait, func() { s.flush(key, lines) })
	}
	lines.n += n
	return 0, false
}

// flush writes one of the suppressed lines, unless a later line has counted them meanwhile.
func (s *logSampler) flush(key uint64, lines *suppressedLines) {
	if s.takePending(key, lines) {
		s.write(lines.first, lines.n-1)
	}
}

func (s *logSampler) takePending(key uint64, lines *suppressedLines) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[key] != lines {
		return false
	}
	delete(s.pending, key)
	s.rotate(time.Now())
	s.current[key] = sampledPeriod{time.Now(), 1}
	return true
}

// flushAll writes one line for each kind of which lines are suppressed.
func (s *logSampler) flushAll() {
	s.mu.Lock()
	pending := s.pending
	s.pending = map[uint64]*suppressedLines{}
	s.mu.Unlock()
	for _, lines := range pending {
		s.write(lines.first, lines.n-1)
	}
}
