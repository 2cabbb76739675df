package internal_test

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/internal/handshake"
)

// originModel is an origin as browsers serialize it (RFC 6454, section 6.2), with an address
// in brackets or a name. Anything else must be rejected, unless "*" admits it; one slash at
// the end is harmless.
var originModel = regexp.MustCompile(`^(?i)([a-z][a-z0-9+.-]*)://((?:\[[0-9a-f:.]+\]|[a-z0-9._~+-]+))(?::([0-9]*))?$`)

// modelOrigin says whether the router of FuzzOrigin admits the origin, and whether it is one.
func modelOrigin(origin, host string, secure bool) (allowed, valid bool) {
	parts := originModel.FindStringSubmatch(strings.TrimSuffix(origin, "/"))
	if parts == nil {
		return false, false
	}
	scheme, name, port := strings.ToLower(parts[1]), strings.ToLower(parts[2]), parts[3]
	defaultPort := map[string]string{"http": "80", "https": "443"}[scheme]
	isDefault := port == defaultPort && port != "" || !strings.Contains(parts[0][len(parts[1])+3+len(parts[2]):], ":")
	switch {
	case scheme == "https" && isDefault && name == "app.example.org":
		return true, true
	case scheme == "https" && isDefault && strings.HasSuffix(name, ".example.net"):
		return true, true
	case scheme == "http" && port == "3000" && name == "localhost":
		return true, true
	}
	full := func(h string) string {
		if strings.HasSuffix(h, ":"+defaultPort) || strings.HasSuffix(h, "]") || !strings.Contains(h, ":") {
			return strings.TrimSuffix(h, ":"+defaultPort) + ":" + defaultPort
		}
		return h
	}
	same := full(strings.ToLower(strings.TrimPrefix(parts[0], parts[1]+"://"))) == full(strings.ToLower(host))
	return same && (scheme == "https" || scheme == "http" && !secure), true
}

// FuzzOrigin compares the origins that are admitted with a model.
func FuzzOrigin(f *testing.F) {
	for _, origin := range []string{
		"https://app.example.org", "HTTPS://APP.example.org:443", "http://app.example.org:443", "https://app.example.org:8443",
		"https://a.b.example.net", "https://example.net", "https://evilexample.net", "http://a.example.net",
		"http://localhost:3000", "http://localhost", "null", "*", "file://", "https://", "://", "http://example.com:80",
		"http://[::1]:8080", "http://example.com", "https://example.com", "http://user@example.com", "http://example.com/path",
		"http://example.com?q", "http://example.com#f", "https://app.example.org, https://evil.example", "http://exa%6dple.com", "http://\u212a.example",
		"http://example.com:", "http://example.com/", "http://example.com//", "http:example.com", "//example.com",
	} {
		for _, secure := range []bool{true, false} {
			f.Add(origin, "example.com", secure)
			f.Add(origin, "Example.com:80", secure)
			f.Add(origin, "[::1]:8080", secure)
		}
	}
	policy := handshake.ParseOrigins([]string{"https://app.example.org:443", "https://*.example.net", "http://localhost:3000"})
	everyPage := handshake.ParseOrigins([]string{"*"})
	proxies := clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	hosts := regexp.MustCompile(`^(?i)(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(:[0-9]+)?$`)
	f.Fuzz(func(t *testing.T, origin, host string, secure bool) {
		req := &http.Request{Host: host, RemoteAddr: "10.0.0.1:1", Header: http.Header{"Origin": {origin}}}
		if secure {
			req.Header.Set("X-Forwarded-Proto", "https")
		}
		if !everyPage.Allow(req, proxies) {
			t.Errorf("%q is rejected, although every page may connect", origin)
		}
		got := policy.Allow(req, proxies)
		if want, valid := modelOrigin(origin, host, secure); origin != "" && got != want && (!valid || hosts.MatchString(host)) {
			t.Errorf("%q for host %q, TLS %t: allowed is %t, want %t", origin, host, secure, got, want)
		}
		req.Header["Origin"] = []string{origin, origin}
		if policy.Allow(req, proxies) || everyPage.Allow(req, proxies) {
			t.Errorf("two fields %q are allowed", origin)
		}
	})
}
