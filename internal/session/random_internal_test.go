package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A randomRun lets connections of three nodes open, resume and lose sessions, while the store is late and
// loses answers, and packets are lost. The model is what has been stored: the order in which connections
// have got each session.
type randomRun struct {
	t     *testing.T
	rng   *rand.Rand
	store *testStore
	nodes []*Node
	conns []*randomConn
	ids   []string // of sessions

	claims, refused, superseded, ended int
}

// A randomConn is a connection, which has one session.
type randomConn struct {
	*testConn

	node  *Node
	s     *Session // nil while it has none
	token string   // the last one that its client has received
	gone  bool
}

// TestSession_RandomEvents compares sessions with the order in which they were stored.
func TestSession_RandomEvents(t *testing.T) {
	var total randomRun
	for seed := range testscale.Tiers[uint64](20, 30, 200) {
		synctest.Test(t, func(t *testing.T) {
			r := newRandomRun(t, seed)
			for range 150 {
				r.step()
			}
			r.finish()
			total.claims, total.refused = total.claims+r.claims, total.refused+r.refused
			total.superseded, total.ended = total.superseded+r.superseded, total.ended+r.ended
		})
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Logf("%d claims, %d refused, %d connections superseded, %d sessions ended", total.claims, total.refused, total.superseded, total.ended)
	for _, n := range []int{total.claims, total.refused, total.superseded, total.ended} {
		assert.Greater(t, n, 100)
	}
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	r := &randomRun{t: t, rng: rand.New(rand.NewPCG(seed, 3)), store: newTestStore()}
	r.store.rng = rand.New(rand.NewPCG(seed, 4))
	for range 3 {
		n := newTestNode(r.store)
		n.config.PerUser, n.config.PerAddress = 1000, 1000
		n.config.Publish = func(kind Packet, packet []byte) { r.publish(n, kind, packet) }
		r.nodes = append(r.nodes, n)
	}
	return r
}

// publish loses one packet of four.
func (r *randomRun) publish(from *Node, kind Packet, packet []byte) {
	r.store.mu.Lock()
	lost := r.rng.IntN(4) == 0
	r.store.mu.Unlock()
	for _, n := range r.nodes {
		if n != from && !lost {
			n.Receive(kind, slices.Clone(packet))
		}
	}
}

func (r *randomRun) step() {
	r.store.mu.Lock()
	n, d := r.rng.IntN(100), time.Duration(r.rng.Int64N(int64(3*time.Second)))
	c := &randomConn{testConn: newTestConn(fmt.Sprint("conn", len(r.conns))), node: r.nodes[r.rng.IntN(len(r.nodes))]}
	var other *randomConn
	known := slices.DeleteFunc(slices.Clone(r.conns), func(c *randomConn) bool { return c.token == "" })
	if len(known) > 0 {
		other = known[len(known)-1-r.rng.IntN(min(4, len(known)))]
	}
	r.store.mu.Unlock()
	switch {
	case n < 10 || other == nil:
		r.conns = append(r.conns, c)
		r.begin(c)
	case n < 40:
		r.conns = append(r.conns, c)
		go r.resume(c, other.token)
	case n < 50:
		r.leave(other, n < 48)
	case n < 65:
		other.s.Grant(fmt.Sprint("topic", n), Grant{})
	case n < 80:
		other.s.Acknowledge("r")
	default:
		time.Sleep(d)
	}
	synctest.Wait()
	r.checkStopped()
}

func (r *randomRun) begin(c *randomConn) {
	s := c.node.Begin(&c.Conn, ann, nil, nil)
	if s.StoreFirst(r.t.Context()) {
		c.s = s
		c.token, _ = s.Token()
		r.ids = append(r.ids, s.id)
	}
}

func (r *randomRun) resume(c *randomConn, token string) {
	k, err := c.node.Claim(r.t.Context(), &Request{Token: token, CorrelationID: "r", Conn: &c.Conn, Identity: ann, Admit: admitAll})
	if err == nil {
		k.Announce()
		err = k.Adopt(ann, nil, nil)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if err != nil {
		r.refused++
		assert.Contains(r.t, []errors.Code{errors.NotFound, errors.Aborted, errors.Unavailable}, errors.CodeOf(err))
		return
	}
	r.claims++
	c.s = k.Session
	c.token, _ = k.Session.Token()
	go func() { // the topics take their time
		time.Sleep(100 * time.Millisecond)
		k.AnnounceMoved(nil)
	}()
}

// leave closes a connection, after which its client may come back unless it is final.
func (r *randomRun) leave(c *randomConn, comesBack bool) {
	if c.s == nil || c.gone {
		return
	}
	c.gone = true
	c.s.Disconnected(!comesBack, false)
	c.s.StayPresent("room/a")
}

// checkStopped fails if a connection has stopped serving although no other one has been stored as the
// owner.
func (r *randomRun) checkStopped() {
	for _, c := range r.conns {
		if c.s == nil || !c.s.TakenOver() {
			continue
		}
		require.Greater(r.t, r.store.generation(c.s.id), c.s.generation, "no connection has taken over the session of %s", c.ID)
	}
}

// finish waits until packets that were lost have been made up for, and then ends all connections.
func (r *randomRun) finish() {
	r.store.mu.Lock()
	r.store.rng = nil
	r.store.mu.Unlock()
	time.Sleep(within/2 + 10*time.Second)
	synctest.Wait()
	for _, c := range r.conns {
		if c.s == nil {
			continue
		}
		latest := r.store.generation(c.s.id)
		if c.s.generation < latest {
			assert.True(r.t, c.gone || c.s.IsOver(), "%s has a session that another connection has", c.ID)
			r.superseded++
		}
	}
	for _, c := range r.conns {
		r.leave(c, true)
	}
	time.Sleep(3 * within)
	synctest.Wait()
	for _, n := range r.nodes {
		all, waiting := n.Len()
		assert.Zero(r.t, all+waiting, "sessions that have not ended")
	}
	for _, c := range r.conns {
		if c.s == nil {
			continue
		}
		r.ended += len(c.reasons)
		assert.LessOrEqual(r.t, len(c.reasons), 1)
		// Without a packet, a node learns only from the record that another connection has the session.
		if c.s.generation < r.store.generation(c.s.id) && !r.store.deleted[c.s.id] {
			assert.NotContains(r.t, c.reasons, Expired, "%s reports the end of a session that another connection has", c.ID)
		}
	}
	for _, id := range r.ids {
		assert.Zero(r.t, r.store.record(id), "a record stays")
	}
	r.checkOrder()
}

// checkOrder fails unless generations grow, and each belongs to one connection.
func (r *randomRun) checkOrder() {
	for _, id := range r.ids {
		var before record
		for _, rec := range r.store.history[id] {
			require.GreaterOrEqual(r.t, rec.Generation, before.Generation, "a connection stores the record of a later one")
			if rec.Generation == before.Generation {
				require.Equal(r.t, before.ConnID, rec.ConnID, "two connections have the same generation")
			}
			before = rec
		}
	}
}

// generation returns the latest one that was stored for a session.
func (b *testStore) generation(id string) (latest uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rec := range b.history[id] {
		latest = max(latest, rec.Generation)
	}
	return latest
}

// noteRecordLocked keeps what is stored.
func (b *testStore) noteRecordLocked(key string, data []byte) {
	if id, ok := strings.CutPrefix(key, recordKey("")); ok {
		var rec record
		_ = decode(data, &rec)
		b.history[id] = append(b.history[id], rec)
	}
}
