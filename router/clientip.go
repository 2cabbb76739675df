package router

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns the address of the client, unmapped and without zone, or the invalid
// one if it is unknown. X-Forwarded-For is believed only as far as trusted proxies have
// written it: from its end up to the first address that is not one of theirs.
func ClientIP(req *http.Request, proxies []netip.Prefix) netip.Addr {
	ip := peerOf(req)
	if !contains(proxies, ip) {
		return ip
	}
	hops := strings.Split(strings.Join(req.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		forwarded := parseHop(strings.TrimSpace(hop))
		if !forwarded.IsValid() {
			return ip
		}
		if ip = forwarded; !contains(proxies, ip) {
			return ip
		}
	}
	return ip
}

func contains(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// peerOf returns the address at the other end of the socket, or the invalid one
// if that is not an IP socket.
func peerOf(req *http.Request) netip.Addr {
	return parseHop(req.RemoteAddr)
}

// parseHop accepts an address with or without a port. Unmapped and without its
// zone, an address has one spelling only.
func parseHop(s string) netip.Addr {
	if hp, err := netip.ParseAddrPort(s); err == nil {
		return hp.Addr().Unmap().WithZone("")
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// networkOf returns what one party can be expected to own: an IPv4 address, or
// a /64 of IPv6 (RFC 6177).
func networkOf(ip netip.Addr) netip.Prefix {
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
