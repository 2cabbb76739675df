package router

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// An originPolicy says which pages may connect. Without it, any page that a
// user looks at could act in the user's name.
type originPolicy struct {
	any      bool
	exact    map[string]bool // scheme://host[:port]
	suffixes []originSuffix
}

// An originSuffix admits the subdomains of a host.
type originSuffix struct{ scheme, suffix string }

// parseOrigins panics if a pattern is not one.
func parseOrigins(patterns []string) originPolicy {
	p := originPolicy{exact: map[string]bool{}}
	for _, pattern := range patterns {
		if pattern == "*" {
			p.any = true
			continue
		}
		u, err := url.Parse(strings.ToLower(pattern))
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(pattern) {
			panic(fmt.Sprintf("router: Origins has %q; a pattern is scheme://host[:port] or *", pattern))
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
			panic(fmt.Sprintf("router: Origins has %q; browsers send such names in Punycode, as in https://xn--bcher-kva.example", pattern))
		}
		host := withoutDefaultPort(u.Scheme, u.Host)
		domain, wild := strings.CutPrefix(host, "*.")
		switch {
		case strings.Contains(domain, "*") || domain == "":
			panic(fmt.Sprintf("router: Origins has %q; a * stands only for all subdomains, as in https://*.example.com", pattern))
		case wild:
			p.suffixes = append(p.suffixes, originSuffix{u.Scheme, "." + domain})
		default:
			p.exact[u.Scheme+"://"+host] = true
		}
	}
	return p
}

// allows reports whether the page that sent the request may connect. Browsers send one
// Origin at most (RFC 6454, section 7.3): with two, servers and proxies could disagree about
// which one counts.
func (p *originPolicy) allows(req *http.Request, proxies TrustedProxies) bool {
	origins := req.Header.Values("Origin")
	if len(origins) > 1 {
		return false
	}
	origin := req.Header.Get("Origin")
	if origin == "" || p.any {
		return true
	}
	if strings.ContainsFunc(origin, isNotInOrigin) {
		return false // in lower case, for one, the Kelvin sign is a k
	}
	origin = strings.TrimSuffix(strings.ToLower(origin), "/") // which clients other than browsers send
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Hostname(), "[]") {
		return false // "null", say, of a sandboxed page
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
	// A page that came over plain HTTP may have been written by anybody on the
	// way: it must not reach a server that is served over TLS.
	sameHost := strings.EqualFold(host, withoutDefaultPort(u.Scheme, req.Host))
	return sameHost && (u.Scheme == "https" || u.Scheme == "http" && req.TLS == nil && !proxies.secure(req))
}

// isNotInOrigin reports whether no scheme, name, address or port contains r.
func isNotInOrigin(r rune) bool {
	isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	return !isAlphanumeric && !strings.ContainsRune("+-._~:/[]", r)
}

// withoutDefaultPort leaves out what browsers leave out, too.
func withoutDefaultPort(scheme, host string) string {
	switch scheme {
	case "https":
		return strings.TrimSuffix(host, ":443")
	case "http":
		return strings.TrimSuffix(host, ":80")
	}
	return host
}
