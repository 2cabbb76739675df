package handshake

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/penstock-go/penstock/clientip"
)

// Origins decides which web pages may connect. It prevents cross-site WebSocket
// hijacking, in which any page that a user visits connects with the user's cookies.
type Origins struct {
	any      bool
	exact    map[string]bool // scheme://host[:port]
	suffixes []originSuffix
}

// An originSuffix allows the subdomains of a host. The suffix begins with a dot.
type originSuffix struct{ scheme, suffix string }

// ParseOrigins parses Options.Origins of package router. It panics if a pattern is invalid.
func ParseOrigins(patterns []string) Origins {
	p := Origins{exact: map[string]bool{}}
	for _, pattern := range patterns {
		if pattern == "*" {
			p.any = true
			continue
		}
		u, err := url.Parse(strings.ToLower(pattern))
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(pattern) {
			panic(fmt.Sprintf("router: Origins contains %q; an origin must be scheme://host[:port] or *", pattern))
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
			panic(fmt.Sprintf("router: Origins contains %q; the host must be in Punycode, as browsers send it: https://xn--bcher-kva.example", pattern))
		}
		host := withoutDefaultPort(u.Scheme, u.Host)
		domain, wild := strings.CutPrefix(host, "*.")
		switch {
		case strings.Contains(domain, "*") || domain == "":
			panic(fmt.Sprintf("router: Origins contains %q; a * may only replace all subdomains, as in https://*.example.com", pattern))
		case wild:
			p.suffixes = append(p.suffixes, originSuffix{u.Scheme, "." + domain})
		default:
			p.exact[u.Scheme+"://"+host] = true
		}
	}
	return p
}

// Allow reports whether the page that sent the request may connect. Browsers send at most one
// Origin (RFC 6454, section 7.3): with two, servers and proxies could disagree about which one
// counts.
func (p *Origins) Allow(req *http.Request, proxies clientip.TrustedProxies) bool {
	origins := req.Header.Values("Origin")
	if len(origins) > 1 {
		return false
	}
	origin := req.Header.Get("Origin")
	if origin == "" || p.any {
		return true
	}
	if strings.ContainsFunc(origin, isNotInOrigin) {
		return false // ToLower maps some of them to ASCII, such as the Kelvin sign to k
	}
	origin = strings.TrimSuffix(strings.ToLower(origin), "/") // some clients other than browsers send the slash
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Hostname(), "[]") {
		return false // for example "null", from a sandboxed page
	}
	host := withoutDefaultPort(u.Scheme, u.Host)
	if p.exact[u.Scheme+"://"+host] {
		return true
	}
	for _, s := range p.suffixes {
		if u.Scheme == s.scheme && strings.HasSuffix(host, s.suffix) {
			return true
		}
	}
	// A page that was loaded over plain HTTP may have been modified by an attacker on the
	// network, so it must not connect to a server that uses TLS.
	sameHost := strings.EqualFold(host, withoutDefaultPort(u.Scheme, req.Host))
	return sameHost && (u.Scheme == "https" || u.Scheme == "http" && req.TLS == nil && !proxies.ReceivedOverTLS(req))
}

// isNotInOrigin reports whether r cannot occur in a scheme, host name, address or port.
func isNotInOrigin(r rune) bool {
	isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	return !isAlphanumeric && !strings.ContainsRune("+-._~:/[]", r)
}

// withoutDefaultPort removes the scheme's default port, as browsers do.
func withoutDefaultPort(scheme, host string) string {
	switch scheme {
	case "https":
		return strings.TrimSuffix(host, ":443")
	case "http":
		return strings.TrimSuffix(host, ":80")
	}
	return host
}
