package simtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type (
	flood struct { // a call whose handler publishes N ripples to the caller
		ID    string `json:"id"`
		Topic string `json:"topic"`
		N     int    `json:"n"`
	}
	ripple struct {
		ID  string `json:"id"` // of the flood
		I   int    `json:"i"`
		Key string `json:"key"`
		Pad string `json:"pad"`
	}
)

func (flood) MessageType() string  { return "FLOOD" }
func (ripple) MessageType() string { return "RIPPLE" }

// ConflationKey returns one of a few keys of the flood.
func (r ripple) ConflationKey() string { return r.Key }

// slowPolicies are the policies of the families of topics, without a history, for clients that read slowly.
var slowPolicies = map[string]router.SlowConsumerPolicy{
	"strict": router.Disconnect, "oldest": router.DropOldest, "newest": router.DropNewest, "conflated": router.Conflate,
}

const (
	floodKeys    = 5
	beforeFlood  = 300 * time.Millisecond // the network of the client stalls within it
	ripplePad    = 500
	largestFlood = 200 // more than the queues of a hot plan hold, and fewer than those of others
)

// A flooding is a flood and what its client has received of it.
type flooding struct {
	call

	life     *life
	conn     string // of the handler
	topic    string
	n        int
	received []int
}

type slowRecord struct {
	mu        sync.Mutex
	floodings map[string]*flooding
	drops     map[string]int64 // as OnLimitExceeded has received, by connection
}

// Clients whose network stalls are sent more than their queue holds, under each policy.
func slowFeature() feature {
	return feature{
		begin: func(*world) any { return &slowRecord{floodings: map[string]*flooding{}, drops: map[string]int64{}} },
		verbs: []verb{{name: "flood", weight: [3]int{3, 3, 8}, draw: func(d *draw, s *step) {
			d.client(s)
			s.Topic = fmt.Sprintf("%s/%d", []string{"strict", "oldest", "newest", "conflated"}[d.IntN(4)], s.Client)
			s.N = 1 + d.IntN(largestFlood)
			if d.plan.Mood != calm {
				s.For = d.span(8 * time.Second)
			}
		}, run: (*world).flood}},
		routes: func(a *app) {
			for name, policy := range slowPolicies {
				router.Topic(a.Router, name+"/{n}", &router.TopicOptions{SlowConsumer: policy})
			}
			router.RPC(a, a.flood)
		},
		client: func(l *life) {
			r := record[*slowRecord](l.device.world)
			client.On(l.Client, func(m ripple, _ *client.Received) {
				r.mu.Lock()
				defer r.mu.Unlock()
				f := r.floodings[m.ID]
				f.received = append(f.received, m.I)
			})
		},
		check: (*world).checkFloods,
	}
}

// flood makes a client call for N ripples; meanwhile, its network stalls for a time.
func (w *world) flood(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	r := record[*slowRecord](w)
	f := &flooding{call: call{id: w.newID("f"), device: s.Client, begun: time.Now(), limit: 30 * time.Second}, life: l, topic: s.Topic, n: s.N}
	r.mu.Lock()
	r.floodings[f.id] = f
	r.mu.Unlock()
	w.begin(func() {
		ctx, cancel := timeout(f.limit)
		defer cancel()
		_, err := client.Call[worked](ctx, l.Client, flood{f.id, s.Topic, s.N})
		w.endCall(&f.call, err)
	})
	if s.For > 0 {
		w.fault()
		w.begin(func() {
			time.Sleep(beforeFlood / 2)
			w.cluster.Stall(l.device.host, s.For)
		})
	}
}

// flood publishes on this node only, so that nothing but the queue of the connection can lose a ripple.
func (a *app) flood(ctx *router.Context, m flood) (worked, error) {
	a.executed(m.ID)
	r := record[*slowRecord](a.world)
	r.mu.Lock()
	r.floodings[m.ID].conn = ctx.Conn().ID()
	r.mu.Unlock()
	if err := ctx.Subscribe(m.Topic); err != nil {
		return worked{}, err
	}
	time.Sleep(beforeFlood)
	pad := strings.Repeat("~", ripplePad)
	for i := range m.N {
		if err := a.Publish(m.Topic, ripple{m.ID, i, fmt.Sprintf("%s/%d", m.ID, i%floodKeys), pad}, router.Local()); err != nil {
			return worked{}, err
		}
	}
	return worked{m.ID}, nil
}

// dropped is called by Options.OnLimitExceeded.
func (r *slowRecord) dropped(e router.LimitExceeded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops[e.Conn.ID()] += e.Messages
}

// checkFloods checks what the policies promise. The reply to a flood is never dropped and arrives behind the ripples, so it shows
// that the connection has lived until all of them were written or dropped.
func (w *world) checkFloods() {
	r := record[*slowRecord](w)
	r.mu.Lock()
	defer r.mu.Unlock()
	byConn := map[string][]*flooding{}
	for _, f := range r.floodings {
		if !f.done {
			w.Errorf("the flood %s of client %d has no outcome", f.id, f.device)
		}
		byConn[f.conn] = append(byConn[f.conn], f)
		w.checkRipples(f, f.done && f.outcome == nil)
	}
	delete(byConn, "")
	for conn, all := range byConn {
		if slices.ContainsFunc(all, func(f *flooding) bool { return f.outcome != nil }) {
			continue
		}
		missing := int64(0)
		for _, f := range all {
			if family(f.topic) != "conflated" {
				missing += int64(f.n - len(f.received))
			}
			if family(f.topic) == "oldest" && len(all) == 1 && !w.followed(f) && !slices.Contains(f.received, f.n-1) {
				w.Errorf("the newest item of the flood %s to %s was dropped", f.id, f.topic)
			}
		}
		if dropped := r.drops[conn]; missing > dropped { // other messages of the queue may be dropped, too
			w.Errorf("client %d: %d ripples to the connection %s are missing, and %d drops were reported", all[0].device, missing, conn, dropped)
		}
	}
}

// followed reports whether other messages may have been queued behind a flood, which drop what is older.
func (w *world) followed(f *flooding) bool {
	meanwhile := func(at time.Time) bool { return !at.Before(f.begun) && at.Sub(f.begun) < f.limit }
	f.life.mu.Lock()
	watches := f.life.watches
	f.life.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.publications, func(p *publication) bool {
		return meanwhile(p.begun) && (family(p.topic) == "join" || slices.ContainsFunc(watches, func(s *watch) bool { return s.topic == p.topic }))
	}) || slices.ContainsFunc(record[*usersRecord](w).sent, func(m *sent) bool { return meanwhile(m.begun) && m.user == f.life.device.User })
}

// checkRipples checks the ripples of one flood, of which a client has the reply if it is whole.
func (w *world) checkRipples(f *flooding, whole bool) {
	name := fmt.Sprintf("client %d: the flood %s of %d to %s", f.device, f.id, f.n, f.topic)
	conflated := family(f.topic) == "conflated"
	last := map[int]int{}
	for _, i := range f.received {
		key := 0
		if conflated {
			key = i % floodKeys
		}
		if before, ok := last[key]; ok && i <= before {
			w.Errorf("%s: received %d after %d", name, i, before)
		}
		last[key] = i
	}
	if w.calm() && errors.CodeOf(f.outcome) == errors.ResourceExhausted {
		w.Errorf("calm: %s failed: %v", name, f.outcome)
	}
	switch {
	case !whole:
	case conflated:
		for i := max(0, f.n-floodKeys); i < f.n; i++ {
			if last[i%floodKeys] != i {
				w.Errorf("%s: the last value of key %d is %d", name, i%floodKeys, last[i%floodKeys])
			}
		}
	case len(f.received) != f.n && (family(f.topic) == "strict" || w.plan.Mood != hot):
		w.Errorf("%s: received %d, though the policy drops none", name, len(f.received))
	}
}
