package router_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/router"
)

var proxyNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func TestOrigins_SchemeIsReadFromProxyHeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header clientip.ForwardedHeader
		remote string
		fields http.Header
		status int // for a page that was loaded over plain HTTP
	}{
		{"nothing is forwarded", clientip.HeaderForwarded, "10.0.0.1:1", nil, 101},
		{"TLS", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"for=192.0.2.1;proto=https"}}, 403},
		{"TLS, quoted", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {`proto="HTTPS", proto=http`}}, 403},
		{"no TLS", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"Forwarded": {"proto=http"}}, 101},
		{"X-Forwarded-Proto instead of Forwarded", clientip.HeaderForwarded, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"https"}}, 101},
		{"an untrusted peer", clientip.HeaderForwarded, "192.0.2.1:1", http.Header{"Forwarded": {"proto=https"}}, 101},
		{"TLS, as X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http", "https, http"}}, 403},
		{"no TLS, as X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"X-Forwarded-Proto": {"http"}}, 101},
		{"Forwarded instead of X-Forwarded-Proto", clientip.HeaderXForwardedFor, "10.0.0.1:1", http.Header{"Forwarded": {"proto=https"}}, 101},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{TrustedProxies: clientip.TrustedProxies{Networks: proxyNetworks, Header: tt.header}}))
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
		TrustedProxies: clientip.TrustedProxies{UnixSocket: true},
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

func TestTrustedProxies_InvalidOptionsPanic(t *testing.T) {
	for name, tt := range map[string]struct {
		proxies clientip.TrustedProxies
		want    string
	}{
		"invalid network": {
			clientip.TrustedProxies{Networks: []netip.Prefix{proxyNetworks[0], {}}},
			"router: TrustedProxies.Networks[1] is not valid; use netip.MustParsePrefix, as in 10.0.0.0/8",
		},
		"mapped network": {
			clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
			"router: TrustedProxies.Networks[0] is ::ffff:10.0.0.0/104, which contains no address, because addresses are unmapped; write the IPv4 network",
		},
		"unknown header": {
			clientip.TrustedProxies{Header: 2},
			"router: TrustedProxies.Header is 2; it must be HeaderXForwardedFor or HeaderForwarded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.PanicsWithValue(t, tt.want, func() { router.New(&router.Options{TrustedProxies: tt.proxies}) })
		})
	}
}
