// Package clientip finds the address of the client behind reverse proxies. It links nothing but the
// standard library.
package clientip

import (
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// TrustedProxies configures the reverse proxies in front of the server: which peers are
// trusted to report the client's address and scheme, and in which header. The zero value
// trusts no peer, and the client's address is that of the socket. The guide reverse-proxies.md
// has a configuration for nginx, HAProxy and Caddy.
//
// Every trusted proxy must replace the header that a client sends, or append to it the address
// from which it accepted the request.
type TrustedProxies struct {
	// Networks contains the addresses of the trusted proxies.
	Networks []netip.Prefix

	// UnixSocket trusts every peer that connects over a Unix socket. Such a peer has no
	// address. If it is not trusted, the client's address is unknown, and limits per address
	// do not apply to it.
	UnixSocket bool

	// Header is the header that the proxies write. No other header is read: a proxy that
	// writes one header forwards the other as the client sent it, which may be forged.
	Header ForwardedHeader
}

// A ForwardedHeader names the headers in which proxies describe the client.
type ForwardedHeader uint8

const (
	// HeaderXForwardedFor reads the address from X-Forwarded-For and the scheme from
	// X-Forwarded-Proto. It is the default.
	HeaderXForwardedFor ForwardedHeader = iota

	// HeaderForwarded reads the parameters for and proto of the header Forwarded (RFC 7239).
	HeaderForwarded
)

// Validate returns an error if a network is invalid or Header is unknown. Constructors that
// receive TrustedProxies panic with it.
func (p TrustedProxies) Validate() error {
	for i, network := range p.Networks {
		if !network.IsValid() {
			return fmt.Errorf("TrustedProxies.Networks[%d] is not valid; use netip.MustParsePrefix, as in 10.0.0.0/8", i)
		}
		if network.Addr().Is4In6() {
			return fmt.Errorf("TrustedProxies.Networks[%d] is %v, which contains no address, because addresses are unmapped; write the IPv4 network", i, network)
		}
	}
	if p.Header > HeaderForwarded {
		return fmt.Errorf("TrustedProxies.Header is %d; it must be HeaderXForwardedFor or HeaderForwarded", p.Header)
	}
	return nil
}

// ClientIP returns the address of the client that sent the request, unmapped and without a
// zone, or the zero netip.Addr if it is unknown. It reads the header from its end, up to the
// first address that is not a trusted proxy's. At an entry that is malformed or has no
// address, it stops and returns the last address before it.
func (p TrustedProxies) ClientIP(req *http.Request) netip.Addr {
	ip := peerOf(req)
	if !p.trustsPeer(req) {
		return ip
	}
	for hop := range p.hops(req.Header) {
		if !hop.IsValid() {
			return ip
		}
		if ip = hop; !p.trusts(ip) {
			return ip
		}
	}
	return ip
}

// trustsPeer reports whether the peer of the socket is a trusted proxy.
func (p TrustedProxies) trustsPeer(req *http.Request) bool {
	if ip := peerOf(req); ip.IsValid() {
		return p.trusts(ip)
	}
	return p.UnixSocket && overUnixSocket(req)
}

// trusts reports whether one of the networks contains ip.
func (p TrustedProxies) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// ReceivedOverTLS reports whether a trusted proxy received the request over TLS. One entry is enough: a
// client that forges it only makes the check of its origin stricter.
func (p TrustedProxies) ReceivedOverTLS(req *http.Request) bool {
	if !p.trustsPeer(req) {
		return false
	}
	for proto := range p.protos(req.Header) {
		if strings.EqualFold(proto, "https") {
			return true
		}
	}
	return false
}

// hops yields the addresses in the header, last one first, and the zero netip.Addr for an
// entry that is malformed or has none.
func (p TrustedProxies) hops(header http.Header) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if p.Header == HeaderForwarded {
			for element := range forwardedElements(header) {
				if !yield(element.client) {
					return
				}
			}
			return
		}
		for _, value := range slices.Backward(header.Values("X-Forwarded-For")) {
			for more := true; more; {
				var hop string
				value, hop, more = cutLast(value, strings.LastIndexByte(value, ','))
				if !yield(parseHop(strings.TrimSpace(hop))) {
					return
				}
			}
		}
	}
}

// protos yields the schemes in the header, in no particular order.
func (p TrustedProxies) protos(header http.Header) iter.Seq[string] {
	return func(yield func(string) bool) {
		if p.Header == HeaderForwarded {
			for element := range forwardedElements(header) {
				if !yield(element.proto) {
					return
				}
			}
			return
		}
		for _, value := range slices.Backward(header.Values("X-Forwarded-Proto")) {
			for proto := range strings.SplitSeq(value, ",") {
				if !yield(strings.TrimSpace(proto)) {
					return
				}
			}
		}
	}
}

// cutLast splits s at the separator at index i, or returns all of s as the last part if i
// is negative.
func cutLast(s string, i int) (before, last string, found bool) {
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// peerOf returns the remote address of the socket, or the zero netip.Addr if it is not an IP
// socket. The peer of a Unix socket may have bound a path that reads like an address.
func peerOf(req *http.Request) netip.Addr {
	if overUnixSocket(req) {
		return netip.Addr{}
	}
	return parseHop(req.RemoteAddr)
}

// overUnixSocket checks the listener's address, because the remote address of a Unix socket is
// any path that the peer has bound, often none.
func overUnixSocket(req *http.Request) bool {
	local, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// parseHop parses an address with or without a port. The result is unmapped and has no zone,
// so that an address has only one form. It returns the zero netip.Addr for anything else.
func parseHop(s string) netip.Addr {
	if hp, err := netip.ParseAddrPort(s); err == nil {
		return hp.Addr().Unmap().WithZone("")
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if s, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.Addr{}
		}
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}
