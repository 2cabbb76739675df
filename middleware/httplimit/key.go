package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
)

// KeyPerIP is KeyPerIPPrefix(32, 64): it gives every IPv4 address and every /64 of IPv6 a bucket.
// A /64 is the smallest prefix that a customer has (RFC 6177). It is the default.
func KeyPerIP(req *http.Request, ip netip.Addr) limit.Key {
	return keyPerIPPrefix(req, ip, rules.PrefixBitsV4, rules.PrefixBitsV6)
}

// KeyPerIPPrefix returns a key function that gives every prefix of addresses a bucket: every v4Bits
// of IPv4, from 1 to 32, and every v6Bits of IPv6, from 1 to 128. It panics if a length is invalid.
// Requests whose client has no address, such as those over a Unix socket, share a bucket if they
// have the same RemoteAddr, which is often empty or "@".
//
// The keys are those of middleware/ratelimit, so limits of messages and requests may share buckets.
func KeyPerIPPrefix(v4Bits, v6Bits int) func(*http.Request, netip.Addr) limit.Key {
	if err := rules.CheckPrefixBits(v4Bits, v6Bits); err != nil {
		panic(fmt.Sprintf("httplimit: %v", err))
	}
	return func(req *http.Request, ip netip.Addr) limit.Key { return keyPerIPPrefix(req, ip, v4Bits, v6Bits) }
}

func keyPerIPPrefix(req *http.Request, ip netip.Addr, v4Bits, v6Bits int) limit.Key {
	if !ip.IsValid() {
		return limit.Key{"conn", req.RemoteAddr}
	}
	return limit.Key{"ip", rules.PrefixName(ip, v4Bits, v6Bits)}
}
