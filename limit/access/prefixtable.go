package access

import (
	"cmp"
	"net/netip"
	"slices"
)

type prefixAccess struct {
	prefix netip.Prefix // masked
	access Access
}

// A prefixTable finds the longest prefix that contains an address. It divides all addresses,
// those of IPv4 before those of IPv6, into ranges in which the same prefix decides. A range
// extends to the start of the next one. A lookup takes log2(ranges) comparisons; n prefixes
// make at most 2n+1 ranges.
type prefixTable []addrRange

type addrRange struct {
	start  netip.Addr
	access Access
}

func newPrefixTable(prefixes []prefixAccess) prefixTable {
	prefixes = slices.Clone(prefixes)
	// An outer prefix comes before those inside it. Of equal prefixes, the denied one is last
	// and decides.
	slices.SortFunc(prefixes, func(a, b prefixAccess) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.access, b.access))
	})
	var t prefixTable
	var open []prefixAccess // the prefixes that contain the current one, outermost first
	closeBefore := func(addr netip.Addr) {
		for len(open) > 0 && !open[len(open)-1].prefix.Contains(addr) {
			end := open[len(open)-1].prefix
			open = open[:len(open)-1]
			outer := Limited
			if len(open) > 0 {
				outer = open[len(open)-1].access
			}
			if next := after(end); next.IsValid() {
				t.add(next, outer)
			}
		}
	}
	for _, p := range prefixes {
		closeBefore(p.prefix.Addr())
		t.add(p.prefix.Addr(), p.access)
		open = append(open, p)
	}
	closeBefore(netip.Addr{}) // which no prefix contains
	return slices.Clip(t)
}

// add starts a range. An earlier range with the same start is empty, and is replaced.
func (t *prefixTable) add(start netip.Addr, a Access) {
	if n := len(*t); n > 0 && (*t)[n-1].start == start {
		*t = (*t)[:n-1]
	}
	*t = append(*t, addrRange{start, a})
}

// after returns the first address after a prefix. The first one of IPv6 follows the last one of
// IPv4. After the last one of IPv6, it is invalid.
func after(p netip.Prefix) netip.Addr {
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(last)
	next := addr.Next()
	if !next.IsValid() && addr.Is4() {
		return netip.IPv6Unspecified()
	}
	return next
}

func (t prefixTable) lookup(ip netip.Addr) Access {
	if len(t) == 0 || !ip.IsValid() {
		return Limited
	}
	ip = ip.Unmap() // with a zone, it follows the same address without one
	i, found := slices.BinarySearchFunc(t, ip, func(r addrRange, ip netip.Addr) int { return r.start.Compare(ip) })
	if found {
		return t[i].access
	}
	if i == 0 {
		return Limited
	}
	return t[i-1].access
}
