package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/router/observe"
)

// Samples are taken at multiples of sampleStep since 1970, so that those of all nodes fit together. A sample's
// number is how many steps that is.
const (
	sampleStep  = 5 * time.Second
	sampleCount = 180 // 15 minutes
	maxTypes    = 64  // of messages that have series of their own
	otherTypes  = "(other)"
)

// A ring has the latest samples of a number, by the number of the sample modulo sampleCount.
type ring [sampleCount]int64

// put adds a sample. Those between it and the one before, which were not taken, are 0.
func (g *ring) put(before, number, value int64) {
	for n := max(before+1, number-sampleCount+1); n < number; n++ {
		g[n%sampleCount] = 0
	}
	g[number%sampleCount] = value
}

// from returns the samples from first to last.
func (g *ring) from(first, last int64) []int64 {
	values := []int64{}
	for n := first; n <= last; n++ {
		values = append(values, g[n%sampleCount])
	}
	return values
}

// A counter counts events. Only its total is safe for concurrent use.
type counter struct {
	total   atomic.Int64
	sampled int64 // of the total
	ring    ring
}

func (c *counter) sample(before, number int64) {
	total := c.total.Load()
	c.ring.put(before, number, total-c.sampled)
	c.sampled = total
}

// typeCounters count the messages of a type.
type typeCounters struct{ messages, refused counter }

// A series has what a node has done in each step of the last 15 minutes. Its size is bounded, and reached only
// with maxTypes types.
type series struct {
	opened, closed, refusedRequests, lost, dropped, sent counter

	types atomic.Pointer[map[string]*typeCounters] // a stored map never changes

	mu                 sync.Mutex // guards what follows, the changes of types, and counters except their totals
	timer              *time.Timer
	ended              bool
	first, last        int64 // numbers of samples; there is none if last is less than first
	conns, memory, lag ring
	load               load
}

// start begins to take samples.
func (s *series) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types.Store(&map[string]*typeCounters{})
	s.load.init()
	now := time.Now()
	s.last = sampleNumber(now)
	s.first = s.last + 1
	s.timer = time.AfterFunc(untilSample(now), s.sample)
}

// end takes no more samples. Those that were taken can still be read.
func (s *series) end(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.timer.Stop()
}

// sampleNumber returns the number of the sample that is nearest to a time: a timer may be early by the clock.
func sampleNumber(t time.Time) int64 { return t.Add(sampleStep/2).UnixNano() / int64(sampleStep) }

func untilSample(now time.Time) time.Duration {
	return time.Unix(0, (sampleNumber(now)+1)*int64(sampleStep)).Sub(now)
}

func (s *series) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	now := time.Now()
	s.timer.Reset(untilSample(now))
	before, number := s.last, sampleNumber(now)
	if number <= before { // the clock was set back
		return
	}
	for _, c := range s.counters() {
		c.sample(before, number)
	}
	for _, t := range *s.types.Load() {
		t.messages.sample(before, number)
		t.refused.sample(before, number)
	}
	memory, lag := s.load.read()
	s.conns.put(before, number, max(s.opened.sampled-s.closed.sampled, 0)) // opened may have been read before closed
	s.memory.put(before, number, memory)
	s.lag.put(before, number, lag.Microseconds())
	s.last = number
}

// counters are those that have no type, by the names that the API gives them.
func (s *series) counters() map[string]*counter {
	return map[string]*counter{
		"opened": &s.opened, "closed": &s.closed, "refusedRequests": &s.refusedRequests, "lost": &s.lost, "dropped": &s.dropped, "sent": &s.sent,
	}
}

// observe counts an event of the router. It allocates for the first message of a type only.
func (s *series) observe(e observe.Event) {
	switch e.Kind {
	case observe.Completed:
		s.ofType(e.Type).messages.total.Add(1)
	case observe.Refused:
		if e.Count == 0 { // a request or a connection
			s.refusedRequests.total.Add(1)
			return
		}
		s.ofType(e.Type).refused.total.Add(1)
	case observe.Opened:
		s.opened.total.Add(1)
	case observe.Closed:
		s.closed.total.Add(1)
	case observe.MessagesLost:
		s.lost.total.Add(int64(max(e.Count, 1)))
	case observe.Dropped:
		s.dropped.total.Add(int64(e.Count))
	case observe.Written:
		s.sent.total.Add(int64(e.Count))
	default:
	}
}

// ofType returns the counters of a type; "" is one that is not registered.
func (s *series) ofType(name string) *typeCounters {
	types := *s.types.Load()
	if t := cmp.Or(types[name], types[otherTypes]); t != nil { // there are other types only when maxTypes are counted
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := *s.types.Load()
	if len(before) >= maxTypes && before[name] == nil {
		name = otherTypes
	}
	if t := before[name]; t != nil {
		return t
	}
	t, all := &typeCounters{}, maps.Clone(before)
	all[name] = t
	s.types.Store(&all)
	return t
}

// A seriesPart is what a node has sampled since the last time. All lists have the same length.
type seriesPart struct {
	Number  int64              `json:"number"` // of the last sample, in steps since 1970
	StepMs  int64              `json:"stepMs"`
	Columns map[string][]int64 `json:"columns"` // "memory" is in bytes, "lag" in microseconds; the others count
	Types   []typePart         `json:"types"`   // those with messages
}

type typePart struct {
	Type     string  `json:"type"` // "" if it is not registered
	Messages []int64 `json:"messages"`
	Refused  []int64 `json:"refused"`
}

// after returns the samples after a number.
func (s *series) after(number int64) *seriesPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := max(s.first, s.last-sampleCount+1, number+1)
	part := &seriesPart{Number: s.last, StepMs: sampleStep.Milliseconds(), Types: []typePart{}, Columns: map[string][]int64{
		"conns": s.conns.from(first, s.last), "memory": s.memory.from(first, s.last), "lag": s.lag.from(first, s.last),
	}}
	for name, c := range s.counters() {
		part.Columns[name] = c.ring.from(first, s.last)
	}
	types := *s.types.Load()
	for _, name := range slices.Sorted(maps.Keys(types)) {
		p := typePart{name, types[name].messages.ring.from(first, s.last), types[name].refused.ring.from(first, s.last)}
		if slices.ContainsFunc(append(slices.Clone(p.Messages), p.Refused...), func(n int64) bool { return n != 0 }) {
			part.Types = append(part.Types, p)
		}
	}
	return part
}
