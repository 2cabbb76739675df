package clientip_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/clientip"
)

var proxyNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

var repeated = regexp.MustCompile(`\{10000 (.*?)\}`)

func TestClientIP(t *testing.T) {
	text, err := os.ReadFile("testdata/clients.txt")
	require.NoError(t, err)
	for _, group := range strings.Split(string(text), "\n== ")[1:] {
		title, cases, _ := strings.Cut(strings.TrimSpace(group), "\n")
		header, _, overSocket := strings.Cut(title, " over ")
		proxies := clientip.TrustedProxies{Networks: proxyNetworks, UnixSocket: overSocket}
		if header == "Forwarded" {
			proxies.Header = clientip.HeaderForwarded
		}
		for line := range strings.Lines(cases) {
			parts := strings.Split(strings.TrimSuffix(line, "\n"), " | ")
			require.Len(t, parts, 4, line)
			t.Run(title+"/"+parts[0], func(t *testing.T) {
				req := httptest.NewRequest(http.MethodGet, "/ws", nil)
				if req.RemoteAddr = parts[1]; parts[1] == "@" {
					socket := &net.UnixAddr{Name: "/run/ws.sock", Net: "unix"}
					req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, socket))
				}
				if parts[2] != "-" {
					fields := repeated.ReplaceAllStringFunc(parts[2], func(s string) string {
						return strings.Repeat(repeated.FindStringSubmatch(s)[1], 10_000)
					})
					req.Header[header] = strings.Split(fields, " & ")
				}
				assert.Equal(t, parts[3], proxies.ClientIP(req).String())
			})
		}
	}
}

func TestClientIP_LoopbackIsNoUnixSocket(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/ws", nil)
	req.RemoteAddr = "127.0.0.1:5000"
	req.Header.Set("X-Forwarded-For", "198.51.100.9")
	assert.Equal(t, "127.0.0.1", clientip.TrustedProxies{UnixSocket: true}.ClientIP(req).String())
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
