package clientip

import (
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The grammar of RFC 7239, section 4, with whitespace around semicolons, as regular
// expressions: slow and independent of the parser.
const (
	tokenText  = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	quotedText = `"(?:[^"\\]|\\(?s:.))*"`
	pairText   = "(" + tokenText + ")=(" + tokenText + "|" + quotedText + ")"
)

var (
	elementModel = regexp.MustCompile(`^(?:[ \t]*(?:` + pairText + `)?[ \t]*;)*[ \t]*(?:` + pairText + `)?[ \t]*$`)
	pairsModel   = regexp.MustCompile(pairText)
	nodeModel    = regexp.MustCompile(`^(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::(?:[0-9]{1,5}|_[0-9A-Za-z._-]+))?$`)
	escapeModel  = regexp.MustCompile(`\\((?s:.))`)
)

// modelForwarded tries every suffix that follows a comma, the shortest first, until one is a
// whole element, and reads the last element first. If none is, the rest is malformed.
func modelForwarded(value string) []netip.Addr {
	var hops []netip.Addr
	for {
		start := len(value)
		for {
			start = strings.LastIndexByte(value[:start], ',')
			if elementModel.MatchString(value[start+1:]) {
				break
			}
			if start < 0 {
				return append(hops, netip.Addr{})
			}
		}
		if element := value[start+1:]; strings.Trim(element, " \t") != "" {
			hops = append(hops, modelClient(element))
		}
		if start < 0 {
			return hops
		}
		value = value[:start]
	}
}

func modelClient(element string) netip.Addr {
	values := map[string][]string{}
	for _, pair := range pairsModel.FindAllStringSubmatch(element, -1) {
		value := pair[2]
		if inner, quoted := strings.CutPrefix(value, `"`); quoted {
			value = escapeModel.ReplaceAllString(strings.TrimSuffix(inner, `"`), "$1")
		}
		values[strings.ToLower(pair[1])] = append(values[strings.ToLower(pair[1])], value)
	}
	if len(values["for"]) != 1 || len(values["proto"]) > 1 {
		return netip.Addr{}
	}
	node := nodeModel.FindStringSubmatch(values["for"][0])
	if node == nil {
		return netip.Addr{}
	}
	ip := net.ParseIP(node[1] + node[2])
	if ip == nil || node[1] != "" && ip.To4() == nil || node[2] != "" && !strings.Contains(node[2], ":") {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// modelXForwardedFor returns the hops from last to first; an invalid hop is the zero Addr.
func modelXForwardedFor(value string) []netip.Addr {
	var hops []netip.Addr
	for _, hop := range slices.Backward(strings.Split(value, ",")) {
		hop = strings.TrimSpace(hop)
		addr, err := netip.ParseAddr(hop)
		if inner, ok := strings.CutPrefix(hop, "["); ok && strings.HasSuffix(hop, "]") {
			addr, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		}
		if hp, errPort := netip.ParseAddrPort(hop); errPort == nil {
			addr, err = hp.Addr(), nil
		}
		if err != nil {
			addr = netip.Addr{}
		}
		hops = append(hops, addr.Unmap().WithZone(""))
	}
	return hops
}

// FuzzForwarded compares both headers with models, from trusted and from untrusted peers, and
// checks that text before the proxy's element never changes the result.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		"for=192.0.2.43, for=198.51.100.17;by=203.0.113.60;proto=http;host=example.com", // RFC 7239, section 4
		`For="[2001:db8:cafe::17]:4711", for=10.1.1.1`,
		`for=_gazonk, for="_mdn:_x", for=unknown, for="unknown:80"`,
		`for=203.0.113.1;x=", for=198.51.100.9`,
		`for=198.51.100.9;host="a\", for=203.0.113.1"`,
		`for="\1\9\8.51.100.9:65536";; , ,for="10.0.0.1:_a-b.c_d"`,
		`for="`, `"`, `\"`, `for="\`, `for="\\",for=10.0.0.1`, "for=;", "=a", " ; ;", "for=1.2.3.4;for=1.2.3.4", "for=1.2.3.4;proto=http;proto=https", "a=b;A=c;for=10.2.3.4",
		"203.0.113.1, 198.51.100.9, 10.0.0.2", "[2001:db8::1]:99,10.0.0.1:80", "::ffff:10.0.0.1, [::1], fe80::1%eth0", ",,", "",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	f.Fuzz(func(t *testing.T, value string, standard bool) {
		proxies := TrustedProxies{Networks: networks}
		name, model, appended := "X-Forwarded-For", modelXForwardedFor, "198.51.100.77"
		if standard {
			proxies.Header = HeaderForwarded
			name, model, appended = "Forwarded", modelForwarded, `for="198.51.100.77:80";host="a,b\"c";proto=https`
		}
		clientIP := func(remote string, fields ...string) netip.Addr {
			return proxies.ClientIP(&http.Request{RemoteAddr: remote, Header: http.Header{name: fields}})
		}
		want := netip.MustParseAddr("10.9.9.9")
		for _, hop := range model(value) {
			if !hop.IsValid() {
				break
			}
			if want = hop; !proxies.trusts(hop) {
				break
			}
		}
		if got := clientIP("10.9.9.9:1", value); got != want {
			t.Errorf("%s: %q is from %v, want %v", name, value, got, want)
		}
		if got := clientIP("192.0.2.1:1", value); got.String() != "192.0.2.1" {
			t.Errorf("%s: %q of an untrusted peer is from %v", name, value, got)
		}
		for _, fields := range [][]string{{value + ", " + appended}, {value, appended}} {
			if got := clientIP("10.9.9.9:1", fields...); got.String() != "198.51.100.77" {
				t.Errorf("%s: %q is from %v; text from a client must not change the proxy's element", name, fields, got)
			}
		}
	})
}
