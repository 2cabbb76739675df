package router_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A proxyLine is a line of the log about a proxy.
type proxyLine struct{ Level, Msg, IP, Remedy string }

// dialProxied opens connections with headers of "Name: value", and returns the lines at level WARN.
func dialProxied(t *testing.T, opts router.Options, conns int, address func(n int) string, headers ...string) (lines []proxyLine) {
	t.Helper()
	var log lockedBuffer
	opts.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r := router.New(&opts)
	for n := range conns {
		dial := []routertest.Option{routertest.RemoteAddr(address(n))}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			dial = append(dial, routertest.Header(name, value))
		}
		routertest.Dial(t, r, dial...)
	}
	assert.NotContains(t, log.String(), "198.51.100.7", "what the client has sent")
	for text := range strings.Lines(log.String()) {
		var line proxyLine
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		lines = append(lines, line)
	}
	return lines
}

func fromProxy(n int) string { return fmt.Sprint("10.0.0.5:", 1000+n) }

func TestProxyWarning_SaysWhichLineIsMissing(t *testing.T) {
	for header, option := range map[string]string{
		"X-Forwarded-For: 198.51.100.7": "}}",
		"Forwarded: for=198.51.100.7":   "}, Header: clientip.HeaderForwarded}",
		"X-Real-IP: 198.51.100.7":       "}}",
	} {
		for _, address := range []string{"10.0.0.5", "2001:db8:1111:2222:3333:4444:5555:6666"} {
			t.Run(header+" from "+address, func(t *testing.T) {
				from := func(n int) string { return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(1000+n)).String() }
				assert.Empty(t, dialProxied(t, router.Options{}, 19, from, header))
				lines := dialProxied(t, router.Options{}, 200, from, header)
				require.Len(t, lines, 1)
				assert.Equal(t, "WARN", lines[0].Level)
				assert.Equal(t, address, lines[0].IP)
				ip := netip.MustParseAddr(address)
				assert.Contains(t, lines[0].Remedy, fmt.Sprintf("set Options.TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix(%q)%s;", netip.PrefixFrom(ip, ip.BitLen()), option))
				assert.True(t, strings.HasSuffix(lines[0].Remedy, "never trust an address from which they connect directly"), "it is not cut")
			})
		}
	}
}

// TestProxyWarning_NeedsManyConnectionsOfOneAddress has clients that forge headers, each from an address of its own, and
// proxies that are trusted.
func TestProxyWarning_NeedsManyConnectionsOfOneAddress(t *testing.T) {
	const forged = "X-Forwarded-For: 198.51.100.7"
	addresses := func(n int) string { return fmt.Sprintf("192.0.2.%d:1", n) }
	trusted := router.Options{TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	assert.Empty(t, dialProxied(t, router.Options{}, 100, addresses, forged))
	assert.Empty(t, dialProxied(t, router.Options{}, 100, fromProxy))
	assert.Empty(t, dialProxied(t, trusted, 100, fromProxy, forged))
	assert.Empty(t, dialProxied(t, trusted, 100, fromProxy, "X-Forwarded-For: 10.0.0.9"), "another proxy")
	assert.Empty(t, dialProxied(t, trusted, 100, fromProxy, "X-Forwarded-For: nonsense"))
	assert.Len(t, dialProxied(t, trusted, 100, func(n int) string { return fmt.Sprint("192.0.2.1:", 1000+n) }, forged), 1, "a proxy that was added later")
}
