package rules

import (
	"fmt"
	"net/netip"
)

// The lengths of the prefix that PrefixOf returns.
const (
	PrefixBitsV4 = 32
	PrefixBitsV6 = 64
)

// PrefixOf returns the smallest prefix that one customer of a provider has: an IPv4 address as /32,
// or the /64 of an IPv6 address (RFC 6177). Limits count by it, because a client can use every
// address of its /64. An IPv4 address mapped to IPv6 is an IPv4 address, and a zone is ignored.
// The prefix of an invalid address is invalid.
func PrefixOf(ip netip.Addr) netip.Prefix { return masked(ip, PrefixBitsV4, PrefixBitsV6) }

// masked returns the prefix of an address with the given length for its family.
func masked(ip netip.Addr, v4Bits, v6Bits int) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := v4Bits
	if ip.Is6() {
		bits = v6Bits
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// PrefixName returns the text of the prefix of an address with the given length for its family: that of the address if the prefix contains no other.
func PrefixName(ip netip.Addr, v4Bits, v6Bits int) string {
	prefix := masked(ip, v4Bits, v6Bits)
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

// CheckPrefixBits returns an error if a length that the function KeyPerIPPrefix of a limit was called with
// is invalid.
func CheckPrefixBits(v4Bits, v6Bits int) error {
	if v4Bits < 1 || v4Bits > 32 || v6Bits < 1 || v6Bits > 128 {
		return fmt.Errorf("KeyPerIPPrefix was called with %d and %d bits; they must be from 1 to 32 and from 1 to 128", v4Bits, v6Bits)
	}
	return nil
}
