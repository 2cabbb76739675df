package router_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

var proxyNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// A clientIPTest is a request with the fields of one header, and the client address that must
// result.
type clientIPTest struct {
	name, remote string
	headers      []string
	want         string
}

func (tt clientIPTest) run(t *testing.T, proxies router.TrustedProxies, header string) {
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
	proxies := router.TrustedProxies{Networks: proxyNetworks}
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
	proxies := router.TrustedProxies{UnixSocket: true, Networks: proxyNetworks}
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
	onlyUnix := router.TrustedProxies{UnixSocket: true}
	clientIPTest{"a loopback address is not a Unix socket", "127.0.0.1:5000", []string{"198.51.100.9"}, "127.0.0.1"}.run(t, onlyUnix, "X-Forwarded-For")
}

func TestClientIP_Forwarded(t *testing.T) {
	proxies := router.TrustedProxies{Networks: proxyNetworks, Header: router.HeaderForwarded}
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
	proxies := router.TrustedProxies{Networks: proxyNetworks}
	assert.Equal(t, "192.0.2.1", proxies.ClientIP(req).String())
	proxies.Header = router.HeaderForwarded
	assert.Equal(t, "192.0.2.2", proxies.ClientIP(req).String())
	assert.Equal(t, "10.0.0.1", router.TrustedProxies{Networks: proxyNetworks, Header: router.HeaderForwarded}.ClientIP(
		&http.Request{RemoteAddr: "10.0.0.1:5000", Header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}}).String())
}

func TestOrigins_SchemeIsReadFromProxyHeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header router.ForwardedHeader
		remote string
		fields http.Header
		status int // for a page that was loaded over plain HTTP
	}{
		{"nothing is forwarded", router.HeaderForwarded, "10.0.0.1:1", nil, 101},
		{"TLS", router.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"for=192.0.2.1;proto=https"}}, 403},
		{"TLS, quoted", router.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {`proto="HTTPS", proto=http`}}, 403},
		{"no TLS", router.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"proto=http"}}, 101},
		{"X-Forwarded-Proto instead of Forwarded", router.HeaderForwarded, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"https"}}, 101},
		{"an untrusted peer", router.HeaderForwarded, "192.0.2.1:1", http.Header{"Forwarded": {"proto=https"}}, 101},
		{"TLS, as X-Forwarded-Proto", router.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http", "https, http"}}, 403},
		{"no TLS, as X-Forwarded-Proto", router.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http"}}, 101},
		{"Forwarded instead of X-Forwarded-Proto", router.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"Forwarded": {"proto=https"}}, 101},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{TrustedProxies: router.TrustedProxies{Networks: proxyNetworks, Header: tt.header}}))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				req.RemoteAddr = tt.remote
				r.ServeHTTP(w, req)
			}))
			defer server.Close()
			header := tt.fields.Clone()
			if header == nil {
				header = http.Header{}
			}
			header.Set("Origin", server.URL)
			ws, resp, err := websocket.Dial(t.Context(), server.URL, &websocket.DialOptions{HTTPHeader: header})
			if err == nil {
				_ = ws.CloseNow()
			}
			require.NotNil(t, resp, "%v", err)
			assert.Equal(t, tt.status, resp.StatusCode)
		})
	}
}

func TestLimits_ConnsPerIPApplyBehindUnixSocket(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "ws.sock"))
	require.NoError(t, err)
	server := &http.Server{Handler: router.New(discardLogs(router.Options{
		TrustedProxies: router.TrustedProxies{UnixSocket: true},
		Limits:         router.Limits{ConnsPerIP: 1},
	}))}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
	}}}
	dial := func(forwarded string) int {
		ws, resp, err := websocket.Dial(t.Context(), "ws://localhost", &websocket.DialOptions{
			HTTPClient: client,
			HTTPHeader: http.Header{"X-Forwarded-For": {forwarded}},
		})
		if err == nil {
			t.Cleanup(func() { _ = ws.CloseNow() })
		}
		require.NotNil(t, resp, "%v", err)
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusSwitchingProtocols, dial("192.0.2.1"))
	assert.Equal(t, http.StatusTooManyRequests, dial("192.0.2.1"))
	assert.Equal(t, http.StatusTooManyRequests, dial("192.0.2.2, 192.0.2.1"), "the client has forged the first address")
	assert.Equal(t, http.StatusSwitchingProtocols, dial("192.0.2.2"))
}

func TestClientIP_PeerOfUnixSocketCannotChooseAddress(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/ws", nil)
	req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}))
	req.RemoteAddr = "10.0.0.1:5000" // a relative path that the peer has bound
	req.Header.Set("X-Forwarded-For", "198.51.100.9")
	assert.Equal(t, netip.Addr{}, router.TrustedProxies{Networks: proxyNetworks}.ClientIP(req))
	assert.Equal(t, "198.51.100.9", router.TrustedProxies{UnixSocket: true}.ClientIP(req).String())
}

func TestTrustedProxies_InvalidOptionsPanic(t *testing.T) {
	for name, tt := range map[string]struct {
		proxies router.TrustedProxies
		want    string
	}{
		"invalid network": {
			router.TrustedProxies{Networks: []netip.Prefix{proxyNetworks[0], {}}},
			"router: TrustedProxies.Networks[1] is not valid; use netip.MustParsePrefix, as in 10.0.0.0/8",
		},
		"mapped network": {
			router.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
			"router: TrustedProxies.Networks[0] is ::ffff:10.0.0.0/104, which contains no address, because addresses are unmapped; write the IPv4 network",
		},
		"unknown header": {
			router.TrustedProxies{Header: 2},
			"router: TrustedProxies.Header is 2; it must be HeaderXForwardedFor or HeaderForwarded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.PanicsWithValue(t, tt.want, func() { router.New(&router.Options{TrustedProxies: tt.proxies}) })
		})
	}
}
