// Package replay simulates policies on recorded requests. Its decisions are exactly those of
// adapters/memory, at the recorded times.
package replay

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/limit"
)

// A Per says which requests share a bucket.
type Per string

// Which requests share a bucket.
const (
	PerKeyAndType Per = "key,type" // those with the same key and type
	PerKey        Per = "key"
	PerType       Per = "type"
)

// Options configure a [Replay].
type Options struct {
	Policies []Policy       // each must be valid
	Rates    []limit.Policy // for Suggest; Per must not be 0, and the capacity is ignored
	Per      Per            // "" is PerKeyAndType
	Late     time.Duration  // how far a request may be out of order within its bucket
}

// A Replay holds the buckets of all policies, in 16 bytes per key and policy, and per key and
// rate, and the limiters of policies that are not a single token bucket. It is not safe for
// concurrent use.
type Replay struct {
	per      Per
	keys     map[string]int
	last     []int64 // by key: the time of its latest request, in microseconds since the epoch
	name     []byte  // buffer of nameOf
	policies []*state
	rates    []*rate
	timeline Timeline
	typed    bool
	clock    int64 // of the limiters, in microseconds since 1970

	requests, outOfOrder, lateInBucket int64
	epoch                              int64 // the time of the first replayed request, in microseconds since 1970
	first, latest                      int64 // the earliest and the latest time, in microseconds since 1970
	late, maxLateness                  int64 // microseconds
}

// Stats are statistics of the replayed requests.
type Stats struct {
	Requests     int64
	Keys         int64         // buckets per policy
	Typed        bool          // whether a request had a type
	First, Last  time.Time     // the earliest and the latest time
	OutOfOrder   int64         // requests with a time before that of an earlier line
	MaxLateness  time.Duration // the largest such difference
	LateInBucket int64         // those of them that are out of order within their bucket
}

// New returns an empty Replay. It panics if a policy is invalid.
func New(opts Options) *Replay {
	r := &Replay{per: opts.Per, late: opts.Late.Microseconds(), keys: map[string]int{}, timeline: newTimeline(len(opts.Policies))}
	for _, p := range opts.Policies {
		r.policies = append(r.policies, newState(p))
	}
	for _, p := range opts.Rates {
		r.rates = append(r.rates, newRate(p))
	}
	return r
}

// maxSpan is the maximum distance of a time from the first one. It keeps units below 2^63.
const maxSpan = 10 * 365 * 24 * time.Hour

// Add replays a request. If the request's time is out of range, Add returns an error and ignores
// the request.
func (r *Replay) Add(request trace.Record) error {
	if r.requests == 0 {
		r.start(request.Micros)
	}
	now := request.Micros - r.epoch
	if max(now, -now) > maxSpan.Microseconds() {
		return fmt.Errorf("time %s is more than ten years from the first request, %s",
			format(request.Micros), format(r.epoch))
	}
	name := r.nameOf(request)
	key, known := r.keys[string(name)]
	if known && now < r.last[key] {
		behind := r.last[key] - now
		if behind > r.late {
			return fmt.Errorf("time %s is %v before that of an earlier line of the same key; it must be at most %v (sort the trace)",
				format(request.Micros), micros(behind), micros(r.late))
		}
		r.lateInBucket++
		now = r.last[key] // the clock of a bucket never goes backwards
	}
	if !known {
		key = r.addKey(name, now)
	}
	r.last[key] = now
	r.countTime(request.Micros)
	r.typed = r.typed || request.Type != ""
	r.decide(key, now, request)
	return nil
}

// start sets the time of the first request. Limiters are created at the earliest time that a
// request may have, because their clocks start at 0 and must not be negative.
func (r *Replay) start(micros int64) {
	r.epoch, r.first, r.latest = micros, micros, micros
	r.clock = micros - maxSpan.Microseconds()
	simulation := memory.NewSimulation(func() time.Time { return time.UnixMicro(r.clock) })
	for _, s := range r.policies {
		s.start(simulation, r.per)
	}
}

func format(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.999999Z")
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// addKey returns the index of a new key with full buckets.
func (r *Replay) addKey(name []byte, now int64) int {
	key := len(r.keys)
	r.keys[string(name)] = key
	r.last = append(r.last, now)
	for _, p := range r.policies {
		p.add(now)
	}
	for _, rate := range r.rates {
		rate.debts = append(rate.debts, debt{fullAt: now * rate.units.PerMicro()})
	}
	return key
}

// countTime updates the statistics of times.
func (r *Replay) countTime(at int64) {
	r.requests++
	r.first = min(r.first, at)
	if at < r.latest {
		r.outOfOrder++
		r.maxLateness = max(r.maxLateness, r.latest-at)
	}
	r.latest = max(r.latest, at)
}

// minOverflowKeys is three quarters of the keys that the smallest limiters keep, a sliding-window
// log and a cooldown. With fewer keys, one of their 64 shards is full with a probability below 10^-14.
const minOverflowKeys = 65_536 * 3 / 4

func (r *Replay) decide(key int, now int64, request trace.Record) {
	r.timeline.begin(request.Micros, request.Cost)
	r.clock = r.epoch + now
	for i, p := range r.policies {
		if p.take(key, now, &request) {
			r.timeline.admit(i, request.Cost)
		}
		if p.joint != nil && len(r.keys) > minOverflowKeys && p.joint.overflows() {
			p.overflowed++
		}
	}
	for _, rate := range r.rates {
		rate.take(key, now, request.Cost)
	}
}

// nameOf returns the name of a request's bucket. It is valid until the next call. The length of
// the key comes first, so that no two pairs of key and type have the same name.
func (r *Replay) nameOf(request trace.Record) []byte {
	switch r.per {
	case PerKey:
		r.name = append(r.name[:0], request.Key...)
	case PerType:
		r.name = append(r.name[:0], request.Type...)
	default:
		r.name = binary.AppendUvarint(r.name[:0], uint64(len(request.Key)))
		r.name = append(append(r.name, request.Key...), request.Type...)
	}
	return r.name
}

// Stats returns the statistics of the requests so far.
func (r *Replay) Stats() Stats {
	return Stats{
		Requests: r.requests, Keys: int64(len(r.keys)), Typed: r.typed,
		First: time.UnixMicro(r.first).UTC(), Last: time.UnixMicro(r.latest).UTC(),
		OutOfOrder: r.outOfOrder, MaxLateness: micros(r.maxLateness), LateInBucket: r.lateInBucket,
	}
}

// Timeline returns demand and admitted tokens over time.
func (r *Replay) Timeline() *Timeline { return &r.timeline }

// ParsePer parses a Per.
func ParsePer(text string) (Per, error) {
	switch per := Per(strings.ReplaceAll(text, " ", "")); per {
	case PerKeyAndType, PerKey, PerType:
		return per, nil
	case "type,key":
		return PerKeyAndType, nil
	}
	return "", fmt.Errorf("must be key,type or key or type, not %q", text)
}
