package simtest

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/router"
)

// An asking is a call of a server to the clients of a user.
type asking struct {
	id, user     string
	begun, ended time.Time
	quiet        bool           // no node was shutting down
	answers      map[string]int // by the ID of the connection
	replies      int
	errors       []error
}

type asksRecord struct {
	mu   sync.Mutex
	asks []*asking
}

// Servers call the clients of a user on all nodes.
func asksFeature() feature {
	return feature{
		begin: func(*world) any { return &asksRecord{} },
		verbs: []verb{{name: "askUser", weight: [3]int{4, 4, 4}, draw: func(d *draw, s *step) { d.node(s); d.client(s) }, run: (*world).askUser}},
		check: (*world).checkAsks,
	}
}

func (w *world) askUser(s step) {
	a, user := w.app(s.Node), w.plan.Clients[s.Client].User
	if a == nil {
		return
	}
	k := &asking{id: w.newID("a"), user: user, begun: time.Now(), answers: map[string]int{}, quiet: w.allHealthy()}
	r := record[*asksRecord](w)
	r.mu.Lock()
	r.asks = append(r.asks, k)
	r.mu.Unlock()
	w.begin(func() {
		ctx, cancel := timeout(10 * time.Second)
		defer cancel()
		for answer := range router.CallUser[asked](ctx, a.Router, "", user, ask{ID: k.id}) {
			k.answers[answer.ConnID]++
			if answer.Err != nil {
				k.errors = append(k.errors, answer.Err)
				if d := a.closedSince(answer.ConnID); d > cancelTime {
					w.Errorf("the call %s to %s waited %v for the connection %s after it had closed", k.id, k.user, d, answer.ConnID)
				}
				continue
			}
			k.replies++
			if answer.Reply.ID != k.id {
				w.Errorf("the call %s to %s has the reply to %q", k.id, user, answer.Reply.ID)
			}
		}
		k.ended, k.quiet = time.Now(), k.quiet && w.allHealthy()
	})
}

// allHealthy reports whether all nodes run and none shuts down. A shutdown moves clients, which may then be called twice or not.
func (w *world) allHealthy() bool {
	for node := 1; node <= w.plan.Nodes; node++ {
		if a := w.app(node); a == nil || !a.Healthy() {
			return false
		}
	}
	return true
}

// checkAsks checks that there is one answer for each connection, and without faults a reply of each client that was
// connected all the time.
func (w *world) checkAsks() {
	r := record[*asksRecord](w)
	calm := w.calm()
	for _, k := range r.asks {
		for conn, n := range k.answers {
			if n > 1 && conn != "" {
				w.Errorf("the call %s to %s has %d answers of the connection %s", k.id, k.user, n, conn)
			}
		}
		stay := 0
		for _, d := range w.clients {
			for _, l := range d.lives {
				if w.checkAsked(k, l, calm) {
					stay++
				}
			}
		}
		if k.replies < stay && k.answers[""] == 0 { // a node that does not say which connections it has is an answer, too
			w.Errorf("calm: the call %s to %s has %d replies; %d clients were connected; errors: %v", k.id, k.user, k.replies, stay, k.errors)
		}
	}
}

// checkAsked reports whether a client must have answered a call.
func (w *world) checkAsked(k *asking, l *life, calm bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.asked[k.id]
	if n > 0 && l.device.User != k.user {
		w.Errorf("client %d was asked %s, which is for %s", l.device.index, k.id, k.user)
	}
	if l.device.User != k.user || !calm || !k.quiet || k.answers[""] > 0 {
		return false
	}
	for _, c := range l.conns {
		if c.from.Before(k.begun.Add(-calmAccessTime)) && (c.to.IsZero() || c.to.After(k.ended.Add(calmAccessTime))) {
			if n != 1 {
				w.Errorf("calm: client %d was asked %s %d times; errors: %v", l.device.index, k.id, n, k.errors)
			}
			return true
		}
	}
	return false
}
