package presence_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic/presence"
)

// An observer knows the members only by what it receives.
type observer map[string]protocol.Member // by ConnID

func (o observer) apply(t *testing.T, left, joined []protocol.Member) {
	for _, m := range left {
		require.Equal(t, o[m.ConnID], m, "leaves as it is known")
		delete(o, m.ConnID)
	}
	for _, m := range joined {
		require.NotContains(t, o, m.ConnID, "joins once")
		o[m.ConnID] = m
	}
}

func (o observer) requireKnows(t *testing.T, members []protocol.Member) {
	require.Len(t, o, len(members))
	for _, m := range members {
		require.Equal(t, m, o[m.ConnID])
	}
}

// A randomRoom is a room with observers of everything that leaves it.
type randomRoom struct {
	*room

	rnd         *rand.Rand
	application observer
	nodes       map[string]bool     // the IDs that the other nodes know
	watchers    map[string]observer // by connection
	sends       bool                // Next will be called
}

// event returns a random event that may happen now.
func (r *randomRoom) event() string {
	conn, id, node := r.rnd.IntN(4), r.rnd.IntN(3), r.rnd.IntN(2)
	name := fmt.Sprint("c", conn)
	_, joined := r.Of(name)
	switch isClosed := r.closed[name] != nil; r.rnd.IntN(7) {
	case 0:
		if !isClosed {
			return fmt.Sprintf("join %s m%d %ds info%d", name, id, 10*r.rnd.IntN(2), r.rnd.IntN(2))
		}
	case 1:
		if !isClosed {
			return fmt.Sprintf("rejoin %s m%d %ds info%d", name, id, 10*r.rnd.IntN(2), r.rnd.IntN(2))
		}
	case 2:
		if joined && !isClosed {
			return []string{"close ", "close-moved "}[r.rnd.IntN(2)] + name
		}
	case 3:
		delete(r.closed, name)
		return []string{"leave ", "move "}[r.rnd.IntN(2)] + name
	case 4:
		return fmt.Sprintf("announced n%d m%d 1000", node, id) + []string{"", " ended"}[r.rnd.IntN(2)]
	case 5:
		return fmt.Sprintf("withdrawn n%d m%d 1000", node, id) + []string{"", " ended"}[r.rnd.IntN(2)]
	case 6:
		return fmt.Sprintf("time m%d", id)
	}
	return "time m0"
}

func (r *randomRoom) observe(t *testing.T, e presence.Effects) {
	r.sends = r.sends || e.SendFeed
	for _, c := range e.Changes {
		if c.Joined {
			r.application.apply(t, nil, []protocol.Member{c.Member})
		} else {
			r.application.apply(t, []protocol.Member{c.Member}, nil)
		}
	}
	for _, a := range e.Announce {
		if a.Joined {
			r.nodes[a.ID] = true
		} else {
			require.Contains(t, r.nodes, a.ID, "only what is announced is withdrawn")
			delete(r.nodes, a.ID)
		}
	}
	r.render(e) // keeps what is held
}

// check compares what others know with what they should.
func (r *randomRoom) check(t *testing.T) {
	r.application.requireKnows(t, r.All())
	local := map[string]bool{}
	for conn := range 4 {
		if m, joined := r.Of(fmt.Sprint("c", conn)); joined {
			local[m.ConnID] = true
		}
	}
	for id := range r.nodes {
		connID, _, _ := strings.Cut(id, " ")
		require.Contains(t, local, connID, "is announced")
		delete(local, connID)
	}
	require.Empty(t, local, "are not announced")
}

// watch starts or ends the watching of a connection, or sends to all.
func (r *randomRoom) watch(t *testing.T) {
	name := fmt.Sprint("c", r.rnd.IntN(4))
	switch r.rnd.IntN(6) {
	case 0:
		r.watchers[name] = observer{}
		r.watchers[name].apply(t, nil, r.Watch(name))
		r.observe(t, r.StartFeed(name))
	case 1:
		delete(r.watchers, name)
		r.Unwatch(name)
	case 2:
		r.send(t)
	}
}

// send sends all that the watchers have not received.
func (r *randomRoom) send(t *testing.T) {
	for r.sends {
		r.sends = false
		for c, m := range r.Next() {
			r.watchers[c].apply(t, m.Left, m.Joined)
		}
		r.observe(t, r.EndNext())
	}
	for _, o := range r.watchers {
		o.requireKnows(t, r.All())
	}
}

// TestMembers_AllObserversAgree lets connections, nodes and watchers come and go at random.
func TestMembers_AllObserversAgree(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
		r := &randomRoom{room: newRoom(), rnd: rnd, application: observer{}, nodes: map[string]bool{}, watchers: map[string]observer{}}
		t.Run(fmt.Sprint(seed), r.live)
	}
}

func (r *randomRoom) live(t *testing.T) {
	var events []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(events, "\n"))
		}
	}()
	for range 200 {
		event := r.event()
		events = append(events, event)
		r.observe(t, r.do(t, event))
		r.check(t)
		r.watch(t)
	}
	r.send(t)
	e, ends := r.Untrack()
	require.True(t, ends)
	r.observe(t, e)
	r.application.requireKnows(t, r.All())
	require.LessOrEqual(t, r.Len(), 3, "local members only")
}
