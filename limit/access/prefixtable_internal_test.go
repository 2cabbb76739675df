package access

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longestPrefix is the definition that prefixTable implements.
func longestPrefix(prefixes []prefixAccess, ip netip.Addr) Access {
	found, bits := Limited, -1
	for _, p := range prefixes {
		switch {
		case !p.prefix.Contains(ip):
		case p.prefix.Bits() > bits:
			found, bits = p.access, p.prefix.Bits()
		case p.prefix.Bits() == bits:
			found = max(found, p.access)
		}
	}
	return found
}

// randomAddr returns one of few addresses, so that many prefixes contain others or touch.
func randomAddr(rng *rand.Rand) netip.Addr {
	low := rng.Uint32N(64)
	if rng.IntN(2) == 0 {
		low = ^low // the last addresses
	}
	if rng.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, low)))
	}
	fill := byte(0)
	if rng.IntN(2) == 0 {
		fill = 0xff
	}
	var six [16]byte
	for i := range six {
		six[i] = fill
	}
	binary.BigEndian.PutUint32(six[12:], low)
	return netip.AddrFrom16(six).Unmap()
}

func TestPrefixTable_EqualsLongestPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[Access]int{}
	for range 3000 {
		var prefixes []prefixAccess
		for range rng.IntN(12) {
			addr := randomAddr(rng)
			bits := addr.BitLen() - rng.IntN(9)
			if rng.IntN(10) == 0 {
				bits = rng.IntN(addr.BitLen() + 1)
			}
			prefixes = append(prefixes, prefixAccess{netip.PrefixFrom(addr, bits).Masked(), 1 + Access(rng.IntN(2))})
		}
		table := newPrefixTable(prefixes)
		require.LessOrEqual(t, len(table), 2*len(prefixes)+1)
		for range 50 {
			ip := randomAddr(rng)
			want := longestPrefix(prefixes, ip)
			seen[want]++
			require.Equal(t, want, table.lookup(ip), "%v in %v", ip, prefixes)
		}
	}
	for _, a := range []Access{Limited, Allowed, Denied} {
		assert.Greater(t, seen[a], 5000)
	}
}

// BenchmarkPrefixTable looks up random addresses among 100,000 prefixes.
func BenchmarkPrefixTable(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, rng.Uint32()))) }
	prefixes := make([]prefixAccess, 100_000)
	for i := range prefixes {
		prefixes[i] = prefixAccess{netip.PrefixFrom(address(), 16+rng.IntN(17)).Masked(), Denied}
	}
	ips := make([]netip.Addr, 1<<16)
	for i := range ips {
		ips[i] = address()
	}
	table := newPrefixTable(prefixes)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		table.lookup(ips[i%len(ips)])
		i++
	}
}

func BenchmarkPrefixTable_Build(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	prefixes := make([]prefixAccess, 100_000)
	for i := range prefixes {
		addr := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, rng.Uint32())))
		prefixes[i] = prefixAccess{netip.PrefixFrom(addr, 16+rng.IntN(17)).Masked(), Denied}
	}
	for b.Loop() {
		newPrefixTable(prefixes)
	}
}
