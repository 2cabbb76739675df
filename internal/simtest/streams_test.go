package simtest

import (
	"iter"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

type (
	walk struct { // a stream whose items take time
		ID     string `json:"id"`
		N      int    `json:"n"`
		Millis int    `json:"millis"`
	}
	climb struct { // a call with progress
		ID     string `json:"id"`
		N      int    `json:"n"`
		Millis int    `json:"millis"`
	}
)

func (walk) MessageType() string  { return "WALK" }
func (climb) MessageType() string { return "CLIMB" }

// A journey is a stream or a call with progress.
type journey struct {
	call

	life     *life
	n        int
	leave    int           // the client leaves after so many items, or -1
	pace     time.Duration // between the items that the client takes
	step     time.Duration // between the items of the handler
	taken    int           // by the client
	sent     int           // by the handler
	running  bool          // the handler runs
	left     time.Time     // by the client, early
	returned time.Time     // of the handler
	replied  bool
}

type streamsRecord struct {
	mu       sync.Mutex
	journeys map[string]*journey
}

// Clients read streams and progress slowly, and leave in the middle.
func streamsFeature() feature {
	draw := func(d *draw, s *step) {
		d.client(s)
		s.N = d.IntN(400)
		s.For = d.span(200 * time.Millisecond)
	}
	return feature{
		begin: func(*world) any { return &streamsRecord{journeys: map[string]*journey{}} },
		verbs: []verb{
			{name: "walk", weight: [3]int{3, 3, 3}, draw: draw, run: func(w *world, s step) { w.travel(s, "walk") }},
			{name: "climb", weight: [3]int{3, 3, 3}, draw: draw, run: func(w *world, s step) { w.travel(s, "climb") }},
		},
		routes: func(a *app) {
			router.Stream(a, a.walk)
			router.RPC(a, a.climb)
		},
		check: (*world).checkStreams,
	}
}

// travel starts a journey of N/2 items. N%4 says who is slow: 0 is none, 1 the handler, 2 the client, 3 both; every fifth client leaves
// in the middle.
func (w *world) travel(s step, kind string) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	j := &journey{call: call{id: w.newID("j"), device: s.Client, kind: kind, begun: time.Now(), limit: 2 * time.Minute}, life: l, n: s.N / 2, leave: -1}
	if s.N%4&1 != 0 {
		j.step = s.For
	}
	if s.N%4&2 != 0 {
		j.pace = s.For
	}
	if s.N%5 == 0 {
		j.leave = j.n / 2
	}
	r := record[*streamsRecord](w)
	r.mu.Lock()
	r.journeys[j.id] = j
	r.mu.Unlock()
	w.begin(func() { w.endCall(&j.call, w.follow(r, j)) })
}

func (w *world) follow(r *streamsRecord, j *journey) error {
	ctx, cancel := timeout(j.limit)
	defer cancel()
	var reply worked
	millis := int(j.step / time.Millisecond)
	items := client.Stream[counted](ctx, j.life.Client, walk{j.id, j.n, millis})
	if j.kind == "climb" {
		items = client.StreamReply[counted](ctx, j.life.Client, climb{j.id, j.n, millis}, &reply)
	}
	for got, err := range items {
		if err != nil {
			return err
		}
		if !r.takes(w, j, got.I) {
			return nil
		}
		time.Sleep(j.pace)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.replied = true
	if j.taken != j.n {
		w.Errorf("client %d: the %s %s ended without an error after %d of %d items", j.device, j.kind, j.id, j.taken, j.n)
	}
	if j.kind == "climb" && reply.ID != j.id {
		w.Errorf("client %d: the climb %s has the reply to %q", j.device, j.id, reply.ID)
	}
	return nil
}

// takes records an item, and reports false if the client leaves.
func (r *streamsRecord) takes(w *world, j *journey, i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i != j.taken {
		w.Errorf("client %d: the %s %s has item %d after %d items", j.device, j.kind, j.id, i, j.taken)
	}
	j.taken++
	if j.leave >= 0 && j.taken > j.leave {
		j.left = time.Now()
		return false
	}
	return true
}

// sends records an item of a handler. A stream has at most 64 items that the loop has not received.
func (r *streamsRecord) sends(w *world, j *journey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j.sent++
	if ahead := j.sent - j.taken; j.kind == "walk" && ahead > credits+1 && j.left.IsZero() && !j.done {
		w.Errorf("client %d: the walk %s is %d items ahead of its client", j.device, j.id, ahead)
	}
}

// credits is what the documentation of client.Stream says, to which the item is added that the loop is about to take.
const credits = 64

func (r *streamsRecord) starts(id string) *journey {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journeys[id].running = true
	return r.journeys[id]
}

func (r *streamsRecord) returns(j *journey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j.running, j.returned = false, time.Now()
}

func (a *app) walk(ctx *router.Context, m walk) iter.Seq2[counted, error] {
	return func(yield func(counted, error) bool) {
		a.executed(m.ID)
		r := record[*streamsRecord](a.world)
		j := r.starts(m.ID)
		defer r.returns(j)
		for i := range m.N {
			if !yield(counted{i}, nil) {
				return
			}
			r.sends(a.world, j)
			if !pause(ctx, m.Millis) {
				return
			}
		}
	}
}

func (a *app) climb(ctx *router.Context, m climb) (worked, error) {
	a.executed(m.ID)
	r := record[*streamsRecord](a.world)
	j := r.starts(m.ID)
	defer r.returns(j)
	for i := range m.N {
		if err := ctx.ProgressWait(counted{i}); err != nil {
			return worked{}, err
		}
		r.sends(a.world, j)
		if !pause(ctx, m.Millis) {
			return worked{}, ctx.Err()
		}
	}
	return worked{m.ID}, nil
}

// pause reports false if the context of a handler has ended.
func pause(ctx *router.Context, millis int) bool {
	select {
	case <-time.After(time.Duration(millis) * time.Millisecond):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// isShort reports whether a journey ends in the time that a shutdown gives to calls, and has no more items than the client holds:
// progress has no credits.
func (j *journey) isShort() bool {
	return j.n <= credits && time.Duration(j.n)*(j.step+j.pace) < 3*time.Second
}

func (w *world) checkStreams() {
	r := record[*streamsRecord](w)
	calm := w.calm()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.journeys {
		name := func() string { return j.kind + " " + j.id }
		w.mu.Lock()
		n, must := w.executions[j.id], j.kind == "climb" && w.mustSucceed(&j.call)
		w.mu.Unlock()
		switch {
		case !j.done:
			w.Errorf("%s of client %d has no outcome", name(), j.device)
		case n > 1:
			w.Errorf("%s of client %d was handled %d times", name(), j.device, n)
		case j.running:
			w.Errorf("the handler of %s of client %d still runs; its client left at %v", name(), j.device, j.left.Sub(w.began))
		case j.replied && (n == 0 || j.sent != j.n):
			w.Errorf("%s of client %d is whole, and its handler has sent %d of %d items", name(), j.device, j.sent, j.n)
		case calm && !j.left.IsZero() && j.returned.Sub(j.left) > calmAccessTime:
			w.Errorf("calm: the handler of %s of client %d ran for %v after its client had left", name(), j.device, j.returned.Sub(j.left))
		case calm && must && j.left.IsZero() && j.outcome != nil && j.isShort():
			w.Errorf("calm: %s of client %d failed: %v", name(), j.device, j.outcome)
		}
	}
}
