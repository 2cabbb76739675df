// Package replay plays calls through policies. It decides to the token as adapters/memory
// does, at the times that the calls bear.
package replay

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Per says which calls share a bucket.
type Per string

// The choices there are.
const (
	PerKeyAndType Per = "key,type" // those of one key and type
	PerKey        Per = "key"
	PerType       Per = "type"
)

// Options are what calls are played through.
type Options struct {
	Policies []ratelimit.Policy // each must be valid
	Rates    []ratelimit.Policy // for Suggest; their Per is not 0, and their capacity does not matter
	Per      Per                // "" is PerKeyAndType
	Late     time.Duration      // how far a call may be behind the latest one of its bucket
}

// A Replay holds the buckets of all policies: 16 bytes for each key and policy, and for each
// key and rate. It is not safe for concurrent use.
type Replay struct {
	per      Per
	keys     map[string]int
	last     []int64 // by key: the time of its latest call, in microseconds since the epoch
	name     []byte  // of the key at hand
	policies []*policy
	rates    []*rate
	timeline Timeline
	typed    bool

	calls, unsorted, lateInKey int64
	epoch                      int64 // the time of the call that was first played, in microseconds since 1970
	first, latest              int64 // likewise
	late, furthest             int64 // microseconds
}

// Stats tells about the calls that were played.
type Stats struct {
	Calls       int64
	Keys        int64         // buckets of each policy
	Typed       bool          // whether a call had a type
	First, Last time.Time     // the earliest and the latest time
	Unsorted    int64         // calls before one that was already played
	Furthest    time.Duration // by how much at most
	LateInKey   int64         // those of them before one of their own bucket: they count as of its time
}

// New returns a replay of nothing. It panics if a policy is not valid.
func New(opts Options) *Replay {
	r := &Replay{per: opts.Per, late: opts.Late.Microseconds(), keys: map[string]int{}, timeline: newTimeline(len(opts.Policies))}
	for _, p := range opts.Policies {
		r.policies = append(r.policies, &policy{Policy: p, units: p.Units()})
	}
	for _, p := range opts.Rates {
		r.rates = append(r.rates, newRate(p))
	}
	return r
}

// maxSpan bounds times on both sides of the first one, so that their units fit in 63 bits.
const maxSpan = 10 * 365 * 24 * time.Hour

// Play plays a call. It returns an error, and plays nothing, if the call's time cannot be.
func (r *Replay) Play(call trace.Record) error {
	if r.calls == 0 {
		r.epoch, r.first, r.latest = call.Micros, call.Micros, call.Micros
	}
	now := call.Micros - r.epoch
	if max(now, -now) > maxSpan.Microseconds() {
		return fmt.Errorf("its time, %s, is more than ten years from the first call's, %s",
			format(call.Micros), format(r.epoch))
	}
	name := r.nameOf(call)
	key, known := r.keys[string(name)]
	if known && now < r.last[key] {
		behind := r.last[key] - now
		if behind > r.late {
			return fmt.Errorf("its time, %s, is %v before that of an earlier line of the same key; at most %v are borne (sort the trace)",
				format(call.Micros), micros(behind), micros(r.late))
		}
		r.lateInKey++
		now = r.last[key] // a bucket's clock never steps back
	}
	if !known {
		key = r.add(name, now)
	}
	r.last[key] = now
	r.note(call.Micros)
	r.typed = r.typed || call.Type != ""
	r.play(key, now, call)
	return nil
}

func format(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.999999Z")
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// add returns the number of a new key, whose buckets are full.
func (r *Replay) add(name []byte, now int64) int {
	key := len(r.keys)
	r.keys[string(name)] = key
	r.last = append(r.last, now)
	for _, p := range r.policies {
		p.buckets = append(p.buckets, bucket{fullAt: now * p.units.PerMicro()})
	}
	for _, rate := range r.rates {
		rate.debts = append(rate.debts, debt{endsAt: now * rate.units.PerMicro()})
	}
	return key
}

// note keeps the statistics of times.
func (r *Replay) note(at int64) {
	r.calls++
	r.first = min(r.first, at)
	if at < r.latest {
		r.unsorted++
		r.furthest = max(r.furthest, r.latest-at)
	}
	r.latest = max(r.latest, at)
}

func (r *Replay) play(key int, now int64, call trace.Record) {
	r.timeline.begin(call.Micros, call.Cost)
	for i, p := range r.policies {
		if p.take(key, now, call.Cost) {
			r.timeline.admit(i, call.Cost)
		}
	}
	for _, rate := range r.rates {
		rate.take(key, now, call.Cost)
	}
}

// nameOf returns what tells a call's bucket from others. It is good until the next.
func (r *Replay) nameOf(call trace.Record) []byte {
	switch r.per {
	case PerKey:
		r.name = append(r.name[:0], call.Key...)
	case PerType:
		r.name = append(r.name[:0], call.Type...)
	default:
		r.name = binary.AppendUvarint(r.name[:0], uint64(len(call.Key)))
		r.name = append(append(r.name, call.Key...), call.Type...)
	}
	return r.name
}

// Stats tells about the calls so far.
func (r *Replay) Stats() Stats {
	return Stats{
		Calls: r.calls, Keys: int64(len(r.keys)), Typed: r.typed,
		First: time.UnixMicro(r.first).UTC(), Last: time.UnixMicro(r.latest).UTC(),
		Unsorted: r.unsorted, Furthest: micros(r.furthest), LateInKey: r.lateInKey,
	}
}

// Timeline returns demand and admission over time.
func (r *Replay) Timeline() *Timeline { return &r.timeline }

// ParsePer reads a Per.
func ParsePer(text string) (Per, error) {
	switch per := Per(strings.ReplaceAll(text, " ", "")); per {
	case PerKeyAndType, PerKey, PerType:
		return per, nil
	case "type,key":
		return PerKeyAndType, nil
	}
	return "", fmt.Errorf("%q is not what a bucket can be for; write key,type or key or type", text)
}
