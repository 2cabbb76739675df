package registry

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAddresses_IdleOnesAreForgotten has a client that changes its network with each request.
func TestAddresses_IdleOnesAreForgotten(t *testing.T) {
	var g Conns[*conn]
	g.Init(Config[*conn]{Handshakes: Rate{PerSecond: 100, Burst: 2000}})
	most := 0
	for n := range 20_000 {
		var ip [16]byte
		binary.BigEndian.PutUint64(ip[:], 0x2001_0db8_0000_0000+uint64(n))
		_, wait := g.ChargeHandshake(netip.AddrFrom16(ip), time.Duration(n)*time.Millisecond)
		require.Zero(t, wait)
		most = max(most, len(g.perIP))
	}
	assert.Less(t, most, 200)
}

// TestAcquire_AddressThatWasForgottenMeanwhile has a request that takes so long that its address is
// forgotten before it acquires a slot, and perhaps known again.
func TestAcquire_AddressThatWasForgottenMeanwhile(t *testing.T) {
	for name, again := range map[string]bool{"forgotten": false, "known again": true} {
		t.Run(name, func(t *testing.T) {
			var g Conns[*conn]
			g.Init(Config[*conn]{PerIP: 1, Handshakes: Rate{PerSecond: 1, Burst: 1}})
			ip, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
			old, _ := g.ChargeHandshake(ip, 0)
			g.ChargeHandshake(other, time.Minute)
			want := old
			if again {
				want, _ = g.ChargeHandshake(ip, time.Minute)
				require.NotSame(t, old, want)
			}
			a, refusal := g.Acquire(old)
			assert.Nil(t, refusal)
			assert.Same(t, want, a)
			later, _ := g.ChargeHandshake(ip, time.Hour)
			_, refusal = g.Acquire(later)
			assert.Equal(t, &Refusal{Observed: 2, Limit: 1, Option: "router.Limits.ConnsPerIP"}, refusal)
		})
	}
}

func TestChargeHandshake_WaitsForTheRateOfItsNetwork(t *testing.T) {
	var g Conns[*conn]
	g.Init(Config[*conn]{Handshakes: Rate{PerSecond: 1, Burst: 1}})
	for _, tt := range []struct {
		ip   netip.Addr
		wait time.Duration
	}{
		{netip.Addr{}, 0}, // unknown: not counted
		{netip.Addr{}, 0},
		{netip.MustParseAddr("2001:db8::1"), 0},
		{netip.MustParseAddr("2001:db8::2"), time.Second},
		{netip.MustParseAddr("2001:db8:0:1::1"), 0},
	} {
		a, wait := g.ChargeHandshake(tt.ip, 0)
		assert.Equal(t, tt.wait, wait, tt.ip)
		assert.Equal(t, tt.ip.IsValid(), a != nil)
	}
}

// TestConns_LeavingUntilTheyAreForgotten removes two of three connections of a user, and forgets one.
func TestConns_LeavingUntilTheyAreForgotten(t *testing.T) {
	var g Conns[*conn]
	g.Init(Config[*conn]{UserOf: func(c *conn) User { return c.user }})
	ann, bob := User{"t", "ann"}, User{"t", "bob"}
	conns := []*conn{{id: "a", user: ann}, {id: "b", user: ann}, {id: "c", user: ann}, {id: "d", user: bob}, {id: "e"}}
	for _, c := range conns {
		g.Add(c.id, c)
		if c.id != "a" {
			g.Remove(c.id)
		}
	}
	assert.Equal(t, conns[:1], g.OfUser(ann))
	assert.Equal(t, conns[1:3], g.Leaving(ann))
	g.Forget(conns[1])
	assert.Equal(t, conns[2:3], g.Leaving(ann))
	g.Forget(conns[2])
	g.Forget(conns[3])
	g.Forget(conns[4])
	assert.Empty(t, g.leaving)
	assert.Empty(t, g.Leaving(User{}))
}
