// Package ipprefix maps the address of a client to the prefix that limits count by.
package ipprefix

import (
	"fmt"
	"net/netip"
)

// The lengths of the prefix that Of returns.
const (
	V4Bits = 32
	V6Bits = 64
)

// Of returns the smallest prefix that one customer of a provider has: an IPv4 address as /32,
// or the /64 of an IPv6 address (RFC 6177). Limits count by it, because a client can use every
// address of its /64. An IPv4 address mapped to IPv6 is an IPv4 address, and a zone is ignored.
// The prefix of an invalid address is invalid.
func Of(ip netip.Addr) netip.Prefix { return masked(ip, V4Bits, V6Bits) }

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

// Name returns the text of the prefix of an address with the given length for its family: that of the address if the prefix contains no other.
func Name(ip netip.Addr, v4Bits, v6Bits int) string {
	prefix := masked(ip, v4Bits, v6Bits)
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

// Validate returns an error if a length that the function KeyPerIPPrefix of a limit was called with
// is invalid.
func Validate(v4Bits, v6Bits int) error {
	if v4Bits < 1 || v4Bits > 32 || v6Bits < 1 || v6Bits > 128 {
		return fmt.Errorf("KeyPerIPPrefix was called with %d and %d bits; they must be from 1 to 32 and from 1 to 128", v4Bits, v6Bits)
	}
	return nil
}
