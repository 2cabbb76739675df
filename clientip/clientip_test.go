package clientip_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/clientip"
)

var proxyNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// A clientIPTest is a request with the fields of one header, and the client address that must
// result.
type clientIPTest struct {
	name, remote string
	headers      []string
	want         string
}

func (tt clientIPTest) run(t *testing.T, proxies clientip.TrustedProxies, header string) {
	t.Run(tt.name, func(t *testing.T) {
		req := httptest.NewRequest(http.MethodGet, "/ws", nil)
		req.RemoteAddr = tt.remote
		if tt.remote == "@" {
			req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}))
		}
		req.Header[header] = tt.headers
		assert.Equal(t, tt.want, proxies.ClientIP(req).String())
	})
}

func TestClientIP_XForwardedFor(t *testing.T) {
	proxies := clientip.TrustedProxies{Networks: proxyNetworks}
	for _, tt := range []clientIPTest{
		{"socket", "192.0.2.1:5000", nil, "192.0.2.1"},
		{"mapped address", "[::ffff:192.0.2.1]:5000", nil, "192.0.2.1"},
		{"zone", "[fe80::1%eth0]:5000", nil, "fe80::1"},
		{"header of an untrusted peer is ignored", "192.0.2.1:5000", []string{"198.51.100.9"}, "192.0.2.1"},
		{"header of a proxy is trusted", "10.0.0.1:5000", []string{"198.51.100.9"}, "198.51.100.9"},
		{"only up to the first untrusted address", "10.0.0.1:5000", []string{"203.0.113.1, 198.51.100.9, 10.0.0.2"}, "198.51.100.9"},
		{"several fields are one list", "10.0.0.1:5000", []string{"203.0.113.1", "198.51.100.9"}, "198.51.100.9"},
		{"an IPv6 proxy", "[fd00::1]:5000", []string{"198.51.100.9, fd00::2"}, "198.51.100.9"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:5000", []string{"198.51.100.9, ::ffff:10.0.0.2"}, "198.51.100.9"},
		{"port and brackets", "10.0.0.1:5000", []string{"[2001:db8::1]:99"}, "2001:db8::1"},
		{"brackets alone", "10.0.0.1:5000", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"an unclosed bracket", "10.0.0.1:5000", []string{"[2001:db8::1"}, "10.0.0.1"},
		{"all are proxies", "10.0.0.1:5000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"a malformed hop stops the walk", "10.0.0.1:5000", []string{"198.51.100.9, unknown"}, "10.0.0.1"},
		{"a malformed hop before proxies", "10.0.0.1:5000", []string{"198.51.100.9, invalid?, 10.0.0.2"}, "10.0.0.2"},
		{"an empty hop stops the walk", "10.0.0.1:5000", []string{"198.51.100.9,"}, "10.0.0.1"},
		{"an empty field stops the walk", "10.0.0.1:5000", []string{"198.51.100.9", ""}, "10.0.0.1"},
		{"only commas", "10.0.0.1:5000", []string{", ,,"}, "10.0.0.1"},
		{"no header", "10.0.0.1:5000", nil, "10.0.0.1"},
		{"10,000 proxies", "10.0.0.1:5000", []string{"198.51.100.9" + strings.Repeat(", 10.0.0.2", 10_000)}, "198.51.100.9"},
		{"10,000 forged hops", "10.0.0.1:5000", []string{strings.Repeat("203.0.113.1,", 10_000) + "198.51.100.9"}, "198.51.100.9"},
		{"Unix socket", "@", []string{"198.51.100.9"}, "invalid IP"},
		{"neither IP nor Unix socket", "pipe", []string{"198.51.100.9"}, "invalid IP"},
	} {
		tt.run(t, proxies, "X-Forwarded-For")
	}
}

func TestClientIP_UnixSocket(t *testing.T) {
	proxies := clientip.TrustedProxies{UnixSocket: true, Networks: proxyNetworks}
	for _, tt := range []clientIPTest{
		{"header is trusted", "@", []string{"198.51.100.9"}, "198.51.100.9"},
		{"only up to the first untrusted address", "@", []string{"203.0.113.1, 198.51.100.9, 10.0.0.2"}, "198.51.100.9"},
		{"a malformed hop", "@", []string{"198.51.100.9, unix:"}, "invalid IP"},
		{"no header", "@", nil, "invalid IP"},
		{"another socket without address", "pipe", []string{"198.51.100.9"}, "invalid IP"},
		{"a peer over IP", "192.0.2.1:5000", []string{"198.51.100.9"}, "192.0.2.1"},
	} {
		tt.run(t, proxies, "X-Forwarded-For")
	}
	onlyUnix := clientip.TrustedProxies{UnixSocket: true}
	clientIPTest{"a loopback address is not a Unix socket", "127.0.0.1:5000", []string{"198.51.100.9"}, "127.0.0.1"}.run(t, onlyUnix, "X-Forwarded-For")
}

func TestClientIP_Forwarded(t *testing.T) {
	proxies := clientip.TrustedProxies{Networks: proxyNetworks, Header: clientip.HeaderForwarded}
	const peer = "10.0.0.1"
	for _, tt := range []clientIPTest{
		{"header of an untrusted peer is ignored", "192.0.2.1:5000", []string{"for=198.51.100.9"}, "192.0.2.1"},
		{"address", "", []string{"for=198.51.100.9"}, "198.51.100.9"},
		{"names in any case", "", []string{"FOR=198.51.100.9;Proto=https"}, "198.51.100.9"},
		{"among other parameters", "", []string{`by=10.0.0.1;host="a;b,c";for=198.51.100.9;proto=https;secret=_x`}, "198.51.100.9"},
		{"quoted address", "", []string{`for="198.51.100.9"`}, "198.51.100.9"},
		{"address with port", "", []string{`for="198.51.100.9:4711"`}, "198.51.100.9"},
		{"address with hidden port", "", []string{`for="198.51.100.9:_a.B-1"`}, "198.51.100.9"},
		{"IPv6", "", []string{`for="[2001:db8::1]"`}, "2001:db8::1"},
		{"IPv6 with port", "", []string{`for="[2001:db8::1]:4711"`}, "2001:db8::1"},
		{"mapped address", "", []string{`for="[::ffff:198.51.100.9]"`}, "198.51.100.9"},
		{"escaped characters", "", []string{`for="\1\9\8.51.100.9"`}, "198.51.100.9"},
		{"empty pairs and space", "", []string{"; for=198.51.100.9 ;; proto=https;"}, "198.51.100.9"},
		{"only up to the first untrusted address", "", []string{`for=203.0.113.1, for=198.51.100.9, for="[fd00::2]"`}, "198.51.100.9"},
		{"several fields are one list", "", []string{"for=203.0.113.1", "for=198.51.100.9"}, "198.51.100.9"},
		{"empty elements are skipped", "", []string{"for=198.51.100.9,, ,", " ", ", for=10.0.0.2 ,"}, "198.51.100.9"},
		{"all are proxies", "", []string{"for=10.0.0.3, for=10.0.0.2"}, "10.0.0.3"},
		{"unknown", "", []string{"for=203.0.113.1, for=unknown"}, peer},
		{"unknown before proxies", "", []string{"for=203.0.113.1, for=unknown, for=10.0.0.2"}, "10.0.0.2"},
		{"hidden", "", []string{"for=203.0.113.1, for=_hidden"}, peer},
		{"hidden with port", "", []string{`for=203.0.113.1, for="_hidden:80"`}, peer},
		{"no address", "", []string{"for=203.0.113.1, proto=https"}, peer},
		{"empty address", "", []string{`for=203.0.113.1, for=""`}, peer},
		{"nothing after the name", "", []string{"for=203.0.113.1, for="}, peer},
		{"no name", "", []string{"for=203.0.113.1, =198.51.100.9"}, peer},
		{"address twice", "", []string{"for=203.0.113.1, for=198.51.100.9;for=198.51.100.9"}, peer},
		{"scheme twice", "", []string{"for=203.0.113.1, for=198.51.100.9;proto=http;proto=https"}, peer},
		{"port without quotes", "", []string{"for=198.51.100.9:80"}, peer},
		{"port too long", "", []string{`for="198.51.100.9:123456"`}, peer},
		{"port without digits", "", []string{`for="198.51.100.9:"`}, peer},
		{"port of letters", "", []string{`for="198.51.100.9:http"`}, peer},
		{"IPv6 without brackets", "", []string{`for="2001:db8::1"`}, peer},
		{"IPv6 without quotes", "", []string{"for=[2001:db8::1]"}, peer},
		{"IPv6 with zone", "", []string{`for="[fe80::1%eth0]"`}, peer},
		{"IPv4 in brackets", "", []string{`for="[198.51.100.9]"`}, peer},
		{"an unclosed bracket", "", []string{`for="[2001:db8::1"`}, peer},
		{"text after the bracket", "", []string{`for="[2001:db8::1]x"`}, peer},
		{"text after the quote", "", []string{`for="198.51.100.9"x`}, peer},
		{"space around the equals sign", "", []string{"for = 198.51.100.9"}, peer},
		{"the syntax of X-Forwarded-For", "", []string{"198.51.100.9"}, peer},
		{"no header", "", nil, peer},
		{"a comma in quotes", "", []string{`for=198.51.100.9;host="a, for=203.0.113.1"`}, "198.51.100.9"},
		{"an escaped quote and a comma", "", []string{`for=198.51.100.9;host="a\", for=203.0.113.1"`}, "198.51.100.9"},
		{"a comma and an escaped quote", "", []string{`for=198.51.100.9;host="a, for=203.0.113.1\""`}, "198.51.100.9"},
		{"an escaped backslash before the quote", "", []string{`for=203.0.113.1;x="\\", for=198.51.100.9;host="\\\\"`}, "198.51.100.9"},
		{"an open quote does not hide the proxy's element", "", []string{`for=203.0.113.1;x=", for=198.51.100.9`}, "198.51.100.9"},
		{"an escape at the end does not hide the proxy's element", "", []string{`for="\, for=198.51.100.9`}, "198.51.100.9"},
		{"an open quote does not hide a quoted element", "", []string{`for=203.0.113.1, for=", for="[2001:db8::1]:80";proto="https"`}, "2001:db8::1"},
		{"an open quote in its own field does not hide the next field", "", []string{`for="`, "for=198.51.100.9"}, "198.51.100.9"},
		{"a malformed element before proxies", "", []string{`for=203.0.113.1, for="10.0.0.3, for=10.0.0.2`}, "10.0.0.2"},
		{"an open quote at the end", "", []string{`for=203.0.113.1, for="`}, peer},
		{"10,000 proxies", "", []string{"for=198.51.100.9" + strings.Repeat(", for=10.0.0.2", 10_000)}, "198.51.100.9"},
		{"10,000 quotes", "", []string{strings.Repeat(`,"\`, 10_000) + ",for=198.51.100.9"}, "198.51.100.9"},
		{"10,000 parameters", "", []string{strings.Repeat("a=b;", 10_000) + "for=198.51.100.9"}, "198.51.100.9"},
	} {
		if tt.remote == "" {
			tt.remote = peer + ":5000"
		}
		tt.run(t, proxies, "Forwarded")
	}
}

func TestClientIP_OnlyConfiguredHeaderIsTrusted(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/ws", nil)
	req.RemoteAddr = "10.0.0.1:5000"
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	req.Header.Set("Forwarded", "for=192.0.2.2")
	proxies := clientip.TrustedProxies{Networks: proxyNetworks}
	assert.Equal(t, "192.0.2.1", proxies.ClientIP(req).String())
	proxies.Header = clientip.HeaderForwarded
	assert.Equal(t, "192.0.2.2", proxies.ClientIP(req).String())
	assert.Equal(t, "10.0.0.1", clientip.TrustedProxies{Networks: proxyNetworks, Header: clientip.HeaderForwarded}.ClientIP(
		&http.Request{RemoteAddr: "10.0.0.1:5000", Header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}}).String())
}

func TestClientIP_PeerOfUnixSocketCannotChooseAddress(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/ws", nil)
	req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}))
	req.RemoteAddr = "10.0.0.1:5000" // a relative path that the peer has bound
	req.Header.Set("X-Forwarded-For", "198.51.100.9")
	assert.Equal(t, netip.Addr{}, clientip.TrustedProxies{Networks: proxyNetworks}.ClientIP(req))
	assert.Equal(t, "198.51.100.9", clientip.TrustedProxies{UnixSocket: true}.ClientIP(req).String())
}
