package registry

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// A conn is a connection of the model: it has a slot, and is registered if it is open.
type conn struct {
	id      string
	user    User
	address *Address
	open    bool
}

// A model has the slots in use in one list, in which it counts whatever a limit bounds.
type model struct {
	config Config[*conn]
	conns  []*conn
	drains bool
}

func (m *model) count(matches func(*conn) bool) (n int) {
	for _, c := range m.conns {
		if matches(c) {
			n++
		}
	}
	return n
}

func (m *model) refuseUser(user User) *Refusal {
	if user.UserID == "" {
		return nil
	}
	return check(m.count(func(c *conn) bool { return c.user == user })+1, m.config.PerUser, "router.Limits.ConnsPerUser")
}

func (m *model) refuseAddress(a *Address) *Refusal {
	switch refusal := check(len(m.conns)+1, m.config.MaxConns, "router.Limits.Conns"); {
	case m.drains:
		return &Refusal{Draining: true}
	case refusal != nil:
		return refusal
	case a == nil:
		return nil
	default:
		return check(m.count(func(c *conn) bool { return c.address == a })+1, m.config.PerIP, "router.Limits.ConnsPerIP")
	}
}

// TestConns_CountWhatIsInUse compares random calls with the model: who is refused, who is found, and when
// the node is drained.
func TestConns_CountWhatIsInUse(t *testing.T) {
	for seed := range uint64(testscale.Tiers(20, 100, 500)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &model{config: Config[*conn]{
			MaxConns: rng.IntN(20), PerIP: rng.IntN(8), PerUser: rng.IntN(5),
			Handshakes: Rate{PerSecond: Unlimited, Burst: Unlimited}, UserOf: func(c *conn) User { return c.user },
		}}
		var g Conns[*conn]
		g.Init(m.config)
		var drained <-chan struct{}
		for step := range 300 {
			m.step(t, &g, rng, fmt.Sprint(step))
			if step == 200 {
				_, drained = g.Drain()
				m.drains = true
			}
			m.compare(t, &g, drained)
		}
		for len(m.conns) > 0 {
			m.close(&g, m.conns[0])
			m.compare(t, &g, drained)
		}
		require.Empty(t, g.users)
		require.Empty(t, g.byUser)
	}
}

// step makes one random change to both.
func (m *model) step(t *testing.T, g *Conns[*conn], rng *rand.Rand, id string) {
	user := User{TenantID: "acme", UserID: []string{"", "ann", "bob", "cid"}[rng.IntN(4)]}
	if len(m.conns) == 0 || rng.IntN(2) == 0 {
		m.connect(t, g, rng, &conn{id: id, user: user})
		return
	}
	c := m.conns[rng.IntN(len(m.conns))]
	if rng.IntN(2) == 0 {
		m.close(g, c)
		return
	}
	var want *Refusal
	if c.open && user != c.user {
		want = m.refuseUser(user)
	}
	before := c.user
	registered, refusal := g.ChangeUser(c.id, user, func() { c.user = user })
	require.Equal(t, c.open, registered)
	require.Equal(t, want, refusal)
	if registered && refusal == nil {
		before = user
	}
	require.Equal(t, before, c.user)
}

// connect acquires slots, and perhaps opens the connection.
func (m *model) connect(t *testing.T, g *Conns[*conn], rng *rand.Rand, c *conn) {
	ip := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}[rng.IntN(3)]
	a, _ := g.ChargeHandshake(ip, 0)
	want := m.refuseAddress(a)
	var refusal *Refusal
	c.address, refusal = g.Acquire(a)
	require.Equal(t, want, refusal)
	if refusal != nil {
		return
	}
	want = m.refuseUser(c.user)
	refusal = g.AcquireUser(c.user)
	require.Equal(t, want, refusal)
	if refusal != nil {
		g.Release(c.address)
		return
	}
	m.conns = append(m.conns, c)
	if c.open = rng.IntN(4) > 0; c.open {
		require.Equal(t, m.drains, g.Add(c.id, c))
	}
}

func (m *model) close(g *Conns[*conn], c *conn) {
	if c.open {
		g.Remove(c.id)
	}
	g.ReleaseUser(c.user)
	g.Release(c.address)
	m.conns = slices.DeleteFunc(m.conns, func(other *conn) bool { return other == c })
}

// compare compares what both find.
func (m *model) compare(t *testing.T, g *Conns[*conn], drained <-chan struct{}) {
	var open []*conn
	for _, c := range m.conns {
		if c.open {
			open = append(open, c)
			require.Same(t, c, g.ByID(c.id))
		}
	}
	require.ElementsMatch(t, open, g.List())
	require.ElementsMatch(t, open, slices.Collect(g.All()))
	for _, user := range []User{{}, {TenantID: "acme"}, {TenantID: "acme", UserID: "ann"}, {TenantID: "acme", UserID: "bob"}, {UserID: "ann"}} {
		var want []*conn
		for _, c := range open {
			if c.user == user && user.UserID != "" {
				want = append(want, c)
			}
		}
		require.ElementsMatch(t, want, g.OfUser(user))
	}
	select {
	case <-drained:
		require.Empty(t, m.conns)
	default:
		require.False(t, m.drains && len(m.conns) == 0)
	}
}
