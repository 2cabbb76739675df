package simtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/runs"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

type (
	token struct { // an item of a run, or several neighbors
		ID string `json:"id"` // that of the call that has started the run
		I  uint64 `json:"i"`
		N  uint64 `json:"n"`
	}
	begin struct { // starts a run
		ID     string `json:"id"`
		Topic  string `json:"topic"`
		N      int    `json:"n"`
		Millis int    `json:"millis"`
	}
	begun struct {
		Run string `json:"run"` // the new run, or the active one of the topic
	}
)

func (token) MessageType() string { return "TOKEN" }
func (begin) MessageType() string { return "BEGIN" }
func (begun) MessageType() string { return "BEGUN" }

// A simRun is what the application knows of a run.
type simRun struct {
	id, topic, request string
	app                *app
	items              uint64 // that its producer emits if nothing ends it
	stops              int    // calls of Stop that have begun
}

// A reading is what a client has read of a run.
type reading struct {
	life   *life
	run    string // "" until it is known
	from   uint64
	begun  time.Time
	parts  []run.Part[token]
	end    runs.End
	ended  bool // end is known
	err    error
	done   bool
	halved bool // the reader has left on purpose, and has continued
}

type runsRecord struct {
	mu       sync.Mutex
	runs     []*simRun
	readings []*reading
	calls    []*call
}

// Runs outlive connections: clients start them, read them early, late and again, and stop them; nodes restart meanwhile.
func runsFeature() feature {
	return feature{
		begin: func(*world) any { return &runsRecord{} },
		verbs: []verb{
			{name: "begin", weight: [3]int{3, 3, 3}, draw: func(d *draw, s *step) {
				d.client(s)
				d.topic(s, "answer")
				s.N = d.IntN(40)
				s.For = d.span(2 * time.Second)
			}, run: (*world).beginRun},
			{name: "read", weight: [3]int{5, 5, 5}, draw: func(d *draw, s *step) { d.client(s); d.topic(s, "answer"); s.N = d.IntN(24) }, run: (*world).readRun},
			{name: "stop", weight: [3]int{1, 1, 1}, draw: func(d *draw, s *step) { d.client(s); s.N = d.IntN(8) }, run: (*world).stopRun},
		},
		routes: func(a *app) {
			rs := run.New(a.Router, "answer/{n}", &run.Options[token]{
				Authorize: func(*router.Context, run.Action, run.Topic) error { return nil },
				Merge: func(first, second token) (token, bool) {
					return token{first.ID, first.I, first.N + second.N}, second.I%8 != 0
				},
				Retain: longestSimulation,
			})
			router.RPC(a, func(ctx *router.Context, m begin) (begun, error) { return a.begin(ctx, rs, m) })
		},
		check: (*world).checkRuns,
	}
}

// longestSimulation is longer than every simulation.
const longestSimulation = 2 * time.Hour

func (a *app) begin(ctx *router.Context, rs *run.Runs[token], m begin) (begun, error) {
	if !a.executed(m.ID) {
		return begun{}, errors.Errorf(errors.Internal, "the node was killed")
	}
	info, err := rs.Start(ctx, m.Topic, &run.StartOptions{RequestID: m.ID}, func(ctx context.Context, out *run.Output[token]) error {
		for i := range uint64(m.N) {
			if err := out.Emit(token{m.ID, i, 1}); err != nil {
				return err
			}
			select {
			case <-time.After(time.Duration(m.Millis) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil && errors.CodeOf(err) != errors.Aborted {
		return begun{}, err
	}
	r := record[*runsRecord](a.world)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.runs = append(r.runs, &simRun{id: info.ID, topic: m.Topic, request: m.ID, app: a, items: uint64(m.N)})
	}
	return begun{info.ID}, nil
}

// beginRun makes a client start a run and read it.
func (w *world) beginRun(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	r := record[*runsRecord](w)
	c := &call{id: w.newID("r"), device: s.Client, kind: "begin", begun: time.Now(), limit: 30 * time.Second}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	w.begin(func() {
		ctx, cancel := timeout(c.limit)
		defer cancel()
		reply, err := client.Call[begun](ctx, l.Client, begin{c.id, s.Topic, s.N, int(s.For / time.Millisecond)})
		w.endCall(c, err)
		if err == nil {
			w.read(l, s.Topic, reply.Run, 0, false)
		}
	})
}

// readRun makes a client read a run from an item on: with N%4 = 0 the latest one of a topic, otherwise any that was started. With
// N%3 = 0, it leaves and comes back.
func (w *world) readRun(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	topic, id := s.Topic, ""
	if known := record[*runsRecord](w).known(s.N); s.N%4 != 0 && known != nil {
		topic, id = known.topic, known.id
	}
	w.begin(func() { w.read(l, topic, id, uint64(s.N%5), s.N%3 == 0) })
}

// known returns one of the runs that were started, or nil.
func (r *runsRecord) known(n int) *simRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.runs) == 0 {
		return nil
	}
	return r.runs[n%len(r.runs)]
}

func (w *world) read(l *life, topic, id string, from uint64, leave bool) {
	g := &reading{life: l, run: id, from: from, begun: time.Now(), halved: leave}
	r := record[*runsRecord](w)
	r.mu.Lock()
	r.readings = append(r.readings, g)
	r.mu.Unlock()
	ctx, cancel := timeout(10 * time.Minute)
	defer cancel()
	reader := runs.Attach[token](l.Client, topic, &runs.Options[token]{Run: id, From: from})
	for again := true; again; {
		again = false
		for part, err := range reader.Parts(ctx) {
			if err != nil {
				g.err = err
				break
			}
			g.parts = append(g.parts, part)
			if leave && len(g.parts) == 2 {
				leave, again = false, true
				break
			}
		}
	}
	g.end, g.ended = reader.End()
	r.mu.Lock()
	defer r.mu.Unlock()
	g.run, g.done = reader.Run(), true
	if g.ended {
		g.run = g.end.Run
	}
}

func (w *world) stopRun(s step) {
	l, known := w.clients[s.Client].life(), record[*runsRecord](w).known(s.N)
	if l == nil || known == nil {
		return
	}
	r := record[*runsRecord](w)
	r.mu.Lock()
	known.stops++
	r.mu.Unlock()
	g := &reading{life: l, run: known.id, begun: time.Now(), halved: true}
	w.begin(func() {
		ctx, cancel := timeout(30 * time.Second)
		defer cancel()
		end, err := runs.Stop[token](ctx, l.Client, known.topic, known.id)
		if err != nil {
			return
		}
		g.end, g.ended, g.done = end, true, true
		g.from = end.Items
		r.mu.Lock()
		defer r.mu.Unlock()
		r.readings = append(r.readings, g)
	})
}

// checkRuns compares what clients have read of each run.
func (w *world) checkRuns() {
	r := record[*runsRecord](w)
	calm := w.calm()
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := map[string]runs.End{}
	for _, g := range r.readings {
		i := slices.IndexFunc(r.runs, func(known *simRun) bool { return known.id == g.run })
		switch {
		case !g.done:
			w.Errorf("client %d still reads run %s", g.life.device.index, g.run)
		case i >= 0:
			w.checkReading(g, r.runs[i], ends, calm)
		case g.ended || len(g.parts) > 0:
			w.checkReading(g, &simRun{id: g.run, items: maxItems, stops: 1}, ends, false) // its start has no outcome
		}
	}
	for _, c := range r.calls {
		if !c.done {
			w.Errorf("the start %s of client %d has no outcome", c.id, c.device)
		}
		w.mu.Lock()
		if c.outcome != nil && calm && w.mustSucceed(c) && errors.CodeOf(c.outcome) != errors.Unavailable { // a node that shuts down starts none
			w.Errorf("calm: the start %s of client %d failed: %v", c.id, c.device, c.outcome)
		}
		w.mu.Unlock()
	}
}

// maxItems is more than any run has.
const maxItems = 1000

func (w *world) checkReading(g *reading, known *simRun, ends map[string]runs.End, calm bool) {
	name := func() (int, string) { return g.life.device.index, known.id }
	next := g.from
	for _, p := range g.parts {
		client, id := name()
		if p.Number != next || p.Item.I != p.Number || p.Item.N != uint64(max(p.Count, 1)) || known.request != "" && p.Item.ID != known.request {
			w.Errorf("client %d: item %d of run %s of %s is %+v", client, next, id, known.request, p)
		}
		next = p.Number + uint64(max(p.Count, 1))
	}
	client, id := name()
	if errors.CodeOf(g.err) == errors.Internal {
		w.Errorf("client %d: reading run %s failed: %v", client, id, g.err)
	}
	if !g.ended {
		if calm && !g.life.ended() {
			w.Errorf("calm: client %d does not know the end of run %s after item %d: %v", client, id, next, g.err)
		}
		return
	}
	e := g.end
	if first, ok := ends[id]; ok && !w.storeLost() && (first.State != e.State || first.Items != e.Items || first.StoppedBy != e.StoppedBy) {
		w.Errorf("client %d: run %s has the end %+v, for others it has %+v", client, id, e, first)
	}
	ends[id] = e
	if !w.storeLost() && (next < e.Items || next > max(e.Items, g.from)) {
		w.Errorf("client %d: has read run %s up to item %d; its end says %d", client, id, next, e.Items)
	}
	if problem := w.wrongEnd(e, known, calm); problem != "" {
		w.Errorf("client %d: run %s of %d items ends with %+v: %s", client, id, known.items, e, problem)
	}
}

// wrongEnd says why a run cannot have ended so, or "".
func (w *world) wrongEnd(e runs.End, known *simRun, calm bool) string {
	switch run.State(e.State) {
	case run.Completed:
		if e.Items != known.items && known.items != maxItems {
			return "it is not complete"
		}
	case run.Stopped:
		if known.stops == 0 {
			return "it was not stopped"
		}
	case run.Interrupted:
		if calm && known.app.Healthy() {
			return "its node runs, and there was no fault"
		}
	default:
		return "it has no reason to end so"
	}
	return ""
}

// storeLost reports whether the store may have lost what it had acknowledged, such as the end of a run.
func (w *world) storeLost() bool {
	occurred := w.cluster.Store.Occurred()
	return occurred["failed over"]+occurred["restarted empty"] > 0
}
