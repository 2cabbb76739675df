package simtest

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A call is a call, an event or a stream of a client, and its outcome.
type call struct {
	id      string
	device  int
	kind    string
	begun   time.Time
	limit   time.Duration // its deadline
	items   []int
	others  bool // the connection of the call does not receive what its handler publishes
	outcome error
	done    bool
	cancel  bool
	stopped time.Time // it was canceled
}

type callsRecord struct{ calls []*call } // guarded by world.mu

// Clients make calls, send events and open streams.
func callsFeature() feature {
	return feature{
		begin: func(*world) any { return &callsRecord{} },
		verbs: []verb{
			{name: "call", weight: [3]int{12, 10, 14}, draw: func(d *draw, s *step) { d.client(s); s.For = d.span(4 * time.Second) }, run: (*world).call},
			{name: "callAndPublish", weight: [3]int{6, 5, 5}, draw: func(d *draw, s *step) {
				d.client(s)
				d.topic(s, "log", "join", "live")
				s.For = d.span(time.Second)
			}, run: (*world).call},
			{name: "callAndPublishToOthers", weight: [3]int{4, 4, 4}, draw: func(d *draw, s *step) {
				d.client(s)
				d.topic(s, "log")
				s.For = d.span(time.Second)
			}, run: (*world).call},
			{name: "cancel", weight: [3]int{2, 2, 2}, draw: func(d *draw, s *step) { d.client(s); s.N = 1; s.For = d.span(4 * time.Second) }, run: (*world).call},
			{name: "event", weight: [3]int{4, 4, 8}, draw: func(d *draw, s *step) { d.client(s); s.N = 1 + d.IntN(4) }, run: (*world).event},
			{name: "stream", weight: [3]int{4, 4, 4}, draw: func(d *draw, s *step) { d.client(s); s.N = d.IntN(60) }, run: (*world).stream},
		},
		check: (*world).checkCalls,
	}
}

func (w *world) newCall(s step, kind string) *call {
	c := &call{id: w.newID("c"), device: s.Client, kind: kind, begun: time.Now(), limit: 30 * time.Second}
	r := record[*callsRecord](w)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.calls = append(r.calls, c)
	return c
}

func (w *world) endCall(c *call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done, c.outcome = true, err
}

// call makes a call whose handler takes For; with N = 1, the client cancels it after half of that.
func (w *world) call(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	c := w.newCall(s, "call")
	if s.Topic != "" {
		c.kind = "publishing call" // the store may refuse the publication of its handler
	}
	c.cancel, c.others = s.N == 1, s.Do == "callAndPublishToOthers"
	w.begin(func() {
		ctx, cancel := timeout(c.limit)
		defer cancel()
		if c.cancel {
			var stop context.CancelFunc
			ctx, stop = context.WithCancel(ctx)
			defer time.AfterFunc(s.For/2, func() {
				w.mu.Lock()
				c.stopped = time.Now()
				w.mu.Unlock()
				stop()
			}).Stop()
		}
		reply, err := client.Call[worked](ctx, l.Client, work{ID: c.id, Millis: int(s.For / time.Millisecond), Publish: s.Topic, Others: c.others})
		if err == nil && reply.ID != c.id {
			w.Errorf("client %d: the call %s has the reply to %q", s.Client, c.id, reply.ID)
		}
		w.endCall(c, err)
	})
}

func (w *world) event(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	for range s.N {
		c := w.newCall(s, "event")
		w.begin(func() {
			ctx, cancel := timeout(c.limit)
			defer cancel()
			w.endCall(c, client.Send(ctx, l.Client, note{ID: c.id}))
		})
	}
}

func (w *world) stream(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	c := w.newCall(s, "stream")
	w.begin(func() {
		ctx, cancel := timeout(c.limit)
		defer cancel()
		for got, err := range client.Stream[counted](ctx, l.Client, count{ID: c.id, N: s.N}) {
			if err != nil {
				w.endCall(c, err)
				return
			}
			if got.I != len(c.items) {
				w.Errorf("client %d: the stream %s has item %d after %d items", s.Client, c.id, got.I, len(c.items))
			}
			c.items = append(c.items, got.I)
		}
		if len(c.items) != s.N {
			w.Errorf("client %d: the stream %s ended without an error after %d of %d items", s.Client, c.id, len(c.items), s.N)
		}
		w.endCall(c, nil)
	})
}

// checkHandler checks, when a handler has done all its work, that nothing should have ended it before: that its client has canceled the
// call, or has lost the connection.
func (a *app) checkHandler(ctx *router.Context, id string) {
	a.outlives(ctx)
	w := a.world
	calm := w.calm()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range record[*callsRecord](w).calls {
		if c.id == id && calm && !c.stopped.IsZero() && time.Since(c.stopped) > cancelTime {
			w.Errorf("calm: the handler of the call %s works %v after the client has canceled it", id, time.Since(c.stopped))
		}
	}
}

// cancelTime is longer than a canceled call needs without a fault to end its handler.
const cancelTime = time.Second

// checkCalls compares outcomes with executions.
func (w *world) checkCalls() {
	calls := record[*callsRecord](w).calls
	calm := w.calm()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range calls {
		n := w.executions[c.id]
		code := errors.CodeOf(c.outcome)
		if !c.done {
			w.Errorf("the %s %s of client %d has no outcome", c.kind, c.id, c.device)
			continue
		}
		if n > 1 {
			w.Errorf("the %s %s of client %d was handled %d times", c.kind, c.id, c.device, n)
		}
		if c.outcome == nil && n == 0 && c.kind != "event" {
			w.Errorf("the %s %s of client %d was answered and not handled", c.kind, c.id, c.device)
		}
		if n > 0 && code == errors.ResourceExhausted && c.kind == "call" {
			w.Errorf("the %s %s of client %d was refused and handled", c.kind, c.id, c.device)
		}
		if c.outcome != nil && calm && w.mustSucceed(c) {
			w.Errorf("calm: the %s %s of client %d, begun at %v and handled %d times, failed: %v", c.kind, c.id, c.device, c.begun.Sub(w.began), n, c.outcome)
		}
	}
}

// mustSucceed reports whether a call has to be answered if there is no fault: it was not canceled, and its client was not
// closed or disconnected meanwhile. A stream ends when its node shuts down.
func (w *world) mustSucceed(c *call) bool {
	if c.cancel || c.kind == "stream" || w.clients[c.device].Fallback && errors.CodeOf(c.outcome) == errors.Unavailable {
		return false // for the last, see refusedByShutdown
	}
	for _, l := range w.clients[c.device].lives {
		if !l.closed.IsZero() && !l.closed.Before(c.begun) && l.closed.Sub(c.begun) < c.limit {
			return false
		}
	}
	for _, dc := range record[*usersRecord](w).disconnects {
		if dc.user == w.clients[c.device].User && dc.begun.Sub(c.begun) < c.limit && (dc.ended.IsZero() || dc.ended.Add(calmAccessTime).After(c.begun)) {
			return false
		}
	}
	return true
}
