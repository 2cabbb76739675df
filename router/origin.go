package router

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
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
		domain, wild := strings.CutPrefix(u.Host, "*.")
		switch {
		case strings.Contains(domain, "*") || domain == "":
			panic(fmt.Sprintf("router: Origins has %q; a * stands only for all subdomains, as in https://*.example.com", pattern))
		case wild:
			p.suffixes = append(p.suffixes, originSuffix{u.Scheme, "." + domain})
		default:
			p.exact[u.Scheme+"://"+u.Host] = true
		}
	}
	return p
}

// allows reports whether the page that sent the request may connect.
func (p *originPolicy) allows(req *http.Request, proxied bool) bool {
	origin := strings.ToLower(req.Header.Get("Origin"))
	if origin == "" || p.any {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false // "null", say, of a sandboxed page
	}
	if p.exact[u.Scheme+"://"+u.Host] {
		return true
	}
	for _, s := range p.suffixes {
		if u.Scheme == s.scheme && strings.HasSuffix(u.Host, s.suffix) {
			return true
		}
	}
	// A page that came over plain HTTP may have been written by anybody on the
	// way: it must not reach a server that is served over TLS.
	sameHost := strings.EqualFold(u.Host, req.Host)
	return sameHost && (u.Scheme == "https" || u.Scheme == "http" && !secure(req, proxied))
}

// secure reports whether the client speaks TLS, to us or to a trusted proxy.
func secure(req *http.Request, proxied bool) bool {
	return req.TLS != nil || proxied && strings.EqualFold(req.Header.Get("X-Forwarded-Proto"), "https")
}
