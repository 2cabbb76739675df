package simtest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/router"
)

// hooks records which hooks of connections and sessions an application was called with.
type hooks struct {
	mu       sync.Mutex
	opened   map[string]int // by the ID of the connection
	closed   map[string]int
	closedAt map[string]time.Time
	left     map[string]bool // closed, and its session can be resumed
	ended    map[string]int  // the sessions of these connections
}

// resumptions are the IDs of connections whose sessions others have resumed, on any node. The lock of the world guards it.
type resumptions map[string]bool

// Everything that connections use is given back when all clients are gone.
func leaksFeature() feature {
	return feature{begin: func(*world) any { return resumptions{} }}
}

// watchHooks sets the hooks of a node.
func (a *app) watchHooks(o *router.Options) {
	h := &hooks{opened: map[string]int{}, closed: map[string]int{}, closedAt: map[string]time.Time{}, left: map[string]bool{}, ended: map[string]int{}}
	a.hooks = h
	o.OnOpen = func(_ context.Context, c *router.Conn) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.opened[c.ID()]++
		return nil
	}
	o.OnClose = func(c *router.Conn, _ router.CloseError) {
		resumable := c.Resumable()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.closed[c.ID()]++
		h.closedAt[c.ID()] = time.Now()
		h.left[c.ID()] = resumable
	}
	o.Resume = router.ResumeOptions{
		Within: resumeWithin,
		OnResume: func(_ *router.Context, s router.ResumedSession) error {
			a.world.mu.Lock()
			defer a.world.mu.Unlock()
			record[resumptions](a.world)[s.ConnID] = true
			return nil
		},
		OnSessionEnd: func(e router.SessionEnd) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended[e.ConnID]++
		},
	}
}

// goneTime is longer than sessions and absent members are kept without a connection.
const goneTime = resumeWithin + presenceGrace + time.Minute

// checkGone ends all clients, and checks that no node has a connection, a session or a member then. In plans with faults, every second
// client loses its network before.
func (w *world) checkGone() {
	for i, d := range w.clients {
		if i%2 == 1 && !w.calm() {
			w.cluster.Cut(d.host)
			w.cluster.Stall(d.host, time.Second)
		}
		w.begin(d.off)
	}
	for _, d := range record[*rawRecord](w).devices {
		w.begin(d.close)
	}
	w.tasks.Wait()
	w.cluster.Wait(closingTime)
	w.checkClosed()
	w.cluster.Wait(goneTime)
	w.mu.Lock()
	apps := w.apps
	w.mu.Unlock()
	for _, a := range apps {
		if !a.killed {
			w.checkHooks(a)
		}
	}
	for node := range w.plan.Nodes {
		a := w.app(node + 1)
		if a == nil {
			continue
		}
		if a.Stats() != (router.Stats{}) {
			w.Errorf("all clients are gone, and %v has %+v", a, a.Stats())
		}
		for _, topic := range []string{"room/1", "room/2"} {
			if members := a.Presence(topic); len(members) > 0 {
				w.Errorf("all clients are gone, and for %v these are present in %s: %v", a, topic, members)
			}
		}
	}
	killed := slices.ContainsFunc(apps, func(a *app) bool { return a.killed }) // their calls wait until they have ended
	if usage := w.cluster.Store.Usage(); usage.WaitingCalls > 0 && !killed {
		w.Errorf("all clients are gone, and %d calls of the store are waiting", usage.WaitingCalls)
	}
}

// closingTime is longer than a node needs to learn that a client has closed its connection.
const closingTime = 5 * time.Second

// checkClosed checks that no connection is left of clients that have closed theirs.
func (w *world) checkClosed() {
	for node := range w.plan.Nodes {
		if a := w.app(node + 1); a != nil && a.Stats().Conns > 0 {
			w.Errorf("all clients have closed their connections, and %v has %d", a, a.Stats().Conns)
		}
	}
}

// closedSince returns how long ago a connection of the node was closed, 0 if it is open or of another node.
func (a *app) closedSince(connID string) time.Duration {
	a.hooks.mu.Lock()
	defer a.hooks.mu.Unlock()
	if at, closed := a.hooks.closedAt[connID]; closed {
		return time.Since(at)
	}
	return 0
}

// outlives reports an error if the context of a handler has not ended although its connection has.
func (a *app) outlives(ctx *router.Context) {
	if d := a.closedSince(ctx.Conn().ID()); d > cancelTime && ctx.Err() == nil {
		a.world.Errorf("%v: the context of a handler has not ended %v after its connection", a, d)
	}
}

// checkHooks checks that OnClose was called once for each call of OnOpen, and OnSessionEnd for each session that no other
// connection has tried to resume, unless its node has shut down before.
func (w *world) checkHooks(a *app) {
	runs := a.Healthy()
	resumed := record[resumptions](w)
	a.hooks.mu.Lock()
	defer a.hooks.mu.Unlock()
	for id, n := range a.hooks.opened {
		if n != 1 || a.hooks.closed[id] != 1 {
			w.Errorf("%v: OnOpen was called %d times for %s, and OnClose %d times", a, n, id, a.hooks.closed[id])
		}
		if a.hooks.ended[id] > 1 {
			w.Errorf("%v: OnSessionEnd was called %d times for %s", a, a.hooks.ended[id], id)
		}
		if runs && a.hooks.left[id] && !resumed[id] && a.hooks.ended[id] == 0 {
			w.Errorf("%v: OnSessionEnd was not called for %s, whose client has not come back", a, id)
		}
	}
	for id := range a.hooks.closed {
		if a.hooks.opened[id] == 0 {
			w.Errorf("%v: OnClose was called for %s, and OnOpen was not", a, id)
		}
	}
}

// storedTime is longer than the store keeps anything: runs are kept for a day.
const storedTime = 49 * time.Hour

// checkStoreEmpty checks, after the nodes have ended, that nothing uses the store any more, and that everything in it has expired.
func (w *world) checkStoreEmpty() {
	time.Sleep(storedTime)
	synctest.Wait()
	u := w.cluster.Store.Usage()
	if u.Nodes > 0 || u.Following > 0 || u.WaitingCalls > 0 || u.Values > 0 || u.Bytes > 0 {
		w.Errorf("all nodes have ended, and the store has %+v", u)
	}
}

// A heap compares the memory of the process after many simulations.
type heap struct{ first uint64 }

// heapTolerance covers caches of the runtime and of packages.
const heapTolerance = 4 << 20

func (h *heap) check(t *testing.T, seeds uint64) {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers and cleanups have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if h.first == 0 {
		h.first = m.HeapAlloc
	}
	if m.HeapAlloc > h.first+heapTolerance {
		t.Errorf("the heap has %d KiB after %d simulations; it had %d KiB before most of them", m.HeapAlloc>>10, seeds, h.first>>10)
	}
}
