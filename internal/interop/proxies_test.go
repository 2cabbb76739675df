package interop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	goclient "github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/interop/proxytest"
	"github.com/penstock-go/penstock/router"
)

// A proxyProgram is a reverse proxy whose configuration is in the guide.
type proxyProgram struct {
	name   string
	block  string // the language of the block in the guide
	listen string // what the block listens at, with %s for the test's address
	here   string // the same in the test
	unix   string // how an upstream at a Unix socket is written

	// command returns how the program runs in the foreground, with a configuration that
	// holds the block, in a directory of its own.
	command func(t *testing.T, dir, block string) []string
}

var proxyPrograms = []proxyProgram{
	{
		name: "nginx", block: "nginx", listen: "listen 443 ssl", here: "listen %s ssl", unix: "unix:%s",
		command: func(t *testing.T, dir, block string) []string { return proxytest.NginxCommand(t, dir, block) },
	},
	{
		name: "haproxy", block: "haproxy", listen: "bind :443", here: "bind %s", unix: "unix@%s",
		command: func(t *testing.T, dir, block string) []string {
			write(t, filepath.Join(dir, "haproxy.cfg"), block)
			return []string{"-db", "-f", filepath.Join(dir, "haproxy.cfg")}
		},
	},
	{
		name: "caddy", block: "caddyfile", listen: "example.com {", here: "https://example.com:%s {", unix: "unix/%s",
		command: func(t *testing.T, dir, block string) []string {
			const process = "{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n}\n"
			write(t, filepath.Join(dir, "Caddyfile"), process+block)
			return []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile")}
		},
	},
}

func write(t *testing.T, path, text string) {
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// guideBlock returns the only block of a language in the guide about reverse proxies.
func guideBlock(t *testing.T, language string) string {
	text, err := os.ReadFile("../../docs/guides/reverse-proxies.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 1, "blocks of %s in the guide", language)
	return string(blocks[0][1])
}

// substitute replaces every pair of strings, each of which must occur.
func substitute(t *testing.T, text string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// idleTimeout is what every timeout of a proxy is in these tests.
const idleTimeout = 2 * time.Second

// A runningProxy is reached at an address of 127.0.0.1, over TLS for example.com.
type runningProxy struct {
	addr  string
	roots *x509.CertPool
}

// start runs the configuration of the guide in front of its three nodes. The pairs replace more.
func (p proxyProgram) start(t *testing.T, nodes [3]string, pairs ...string) *runningProxy {
	program := proxytest.Program(t, p.name)
	dir := shortTempDir(t)
	proxy := &runningProxy{roots: proxytest.WriteCertificate(t, dir), addr: freeport.Address()}
	at := proxy.addr
	if p.name == "caddy" {
		_, at, _ = net.SplitHostPort(proxy.addr)
	}
	pairs = append(pairs, p.listen, fmt.Sprintf(p.here, at), "/etc/ssl/", dir+"/")
	for i, node := range nodes {
		pairs = append(pairs, fmt.Sprintf("10.0.0.%d:8080", i+1), node)
	}
	block := substitute(t, guideBlock(t, p.block), pairs...)
	proxytest.Run(t, program, dir, p.command(t, dir, block), proxy.addr)
	return proxy
}

// startIdle is start for one node that is named three times, with short timeouts.
func (p proxyProgram) startIdle(t *testing.T, network, node string) *runningProxy {
	if network == "unix" {
		node = fmt.Sprintf(p.unix, node)
	}
	return p.start(t, [3]string{node, node, node}, "60s", idleTimeout.String())
}

// host is what browsers send as Host.
func (p *runningProxy) host() string {
	_, port, _ := net.SplitHostPort(p.addr)
	return "example.com:" + port
}

// transport sends requests from an address of this machine to the proxy.
func (p *runningProxy) transport(from string) *http.Transport {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", p.addr)
		},
	}
}

// dial connects from an address of this machine. Without an error, the handshake succeeded.
func (p *runningProxy) dial(ctx context.Context, from string, header http.Header) (*websocket.Conn, *http.Response, error) {
	transport := p.transport(from)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return websocket.Dial(ctx, "wss://"+p.host()+"/ws", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport},
		HTTPHeader:   header,
		Subprotocols: []string{"chat.v1"},
	})
}

// connect is dial for a handshake that must succeed.
func (p *runningProxy) connect(t *testing.T, from string, header http.Header) *client {
	t.Helper()
	ws, resp, err := p.dial(t.Context(), from, header)
	if err != nil && resp != nil {
		body, _ := io.ReadAll(resp.Body)
		t.Logf("%s: %s", resp.Status, body)
	}
	require.NoError(t, err)
	return newClient(t, ws)
}

func (p *runningProxy) status(t *testing.T, from string, header http.Header) int {
	t.Helper()
	ws, resp, err := p.dial(t.Context(), from, header)
	if err == nil {
		_ = ws.CloseNow()
	}
	require.NotNil(t, resp, "%v", err)
	return resp.StatusCode
}

func behindProxy(network string, ping time.Duration) router.Options {
	opts := router.Options{
		Timeouts: router.Timeouts{Ping: ping, Pong: idleTimeout / 2}, // pings are apart by the longer one
		Authenticate: func(req *http.Request) (router.Identity, error) {
			if req.Header.Get("X-Test-Reject") != "" {
				return router.Identity{}, &errors.Error{Code: errors.Unavailable, Message: "come back later", RetryAfter: 7 * time.Second}
			}
			return router.Identity{}, nil
		},
	}
	if network == "unix" {
		opts.TrustedProxies.UnixSocket = true
	} else {
		opts.TrustedProxies.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}
	return opts
}

// withHealth serves the router at /ws, its HTTP fallback and its health check.
func withHealth(r *router.Router) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", r)
	mux.Handle("/ws/http", r.HTTPFallback(nil))
	mux.HandleFunc("GET /readyz", r.ServeHealth)
	return mux
}

// needManyLoopbacks skips the test where clients cannot connect from 127.0.0.2.
func needManyLoopbacks(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("clients are distinguished by their loopback addresses: %v", err)
	}
	_ = listener.Close()
}

func TestReverseProxies(t *testing.T) {
	needManyLoopbacks(t)
	for _, program := range proxyPrograms {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(program.name+" over "+network, func(t *testing.T) {
				t.Parallel()
				node := serve(t, network, withHealth(newRouter(behindProxy(network, idleTimeout/5))))
				proxy := program.startIdle(t, network, node)
				checkClientAddress(t, proxy)
				checkOrigin(t, proxy)
				checkRejection(t, proxy)
				callOverHTTP := connectOverHTTP(t, proxy)
				callOverHTTP()
				checkIdle(t, proxy)
				callOverHTTP() // proxies have ended its response meanwhile
			})
		}
	}
}

func checkClientAddress(t *testing.T, proxy *runningProxy) {
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		c := proxy.connect(t, from, nil)
		assert.Equal(t, from, c.whoAmI())
		c.close()
	}
	for _, forged := range []http.Header{
		{"X-Forwarded-For": {"203.0.113.9"}},
		{"X-Forwarded-For": {"203.0.113.9, 127.0.0.1", "127.0.0.1"}},
		{"Forwarded": {"for=203.0.113.9"}},
		{"Forwarded": {`for="`}, "X-Real-Ip": {"203.0.113.9"}},
	} {
		c := proxy.connect(t, "127.0.0.4", forged)
		assert.Equal(t, "127.0.0.4", c.whoAmI(), "with the forged header %v", forged)
		c.close()
	}
}

func checkOrigin(t *testing.T, proxy *runningProxy) {
	for origin, want := range map[string]int{
		"https://" + proxy.host(): http.StatusSwitchingProtocols,
		"http://" + proxy.host():  http.StatusForbidden,
		"https://evil.example":    http.StatusForbidden,
	} {
		assert.Equal(t, want, proxy.status(t, "127.0.0.2", http.Header{"Origin": {origin}}), "origin %s", origin)
		forged := http.Header{"Origin": {origin}, "X-Forwarded-Proto": {"http"}}
		assert.Equal(t, want, proxy.status(t, "127.0.0.2", forged), "origin %s with a forged scheme", origin)
	}
}

func checkRejection(t *testing.T, proxy *runningProxy) {
	_, resp, err := proxy.dial(t.Context(), "127.0.0.2", http.Header{"X-Test-Reject": {"1"}})
	require.Error(t, err)
	require.NotNil(t, resp, "%v", err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "7", resp.Header.Get("Retry-After"))
	assert.Contains(t, string(body), "come back later")
}

// connectOverHTTP connects a client whose WebSockets are refused in front of the proxy, and returns a function that calls
// the server.
func connectOverHTTP(t *testing.T, proxy *runningProxy) (call func()) {
	base := proxy.transport("127.0.0.2")
	t.Cleanup(base.CloseIdleConnections)
	transport := fallback.New("https://"+proxy.host()+"/ws/http", &fallback.Options{Base: refuseUpgrades{base}})
	c := goclient.New("wss://"+proxy.host()+"/ws", &goclient.Options{
		HTTPClient: &http.Client{Transport: transport}, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return func() {
		t.Helper()
		me, err := goclient.Call[Client](t.Context(), c, WhoAmI{})
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.2", me.IP)
	}
}

// refuseUpgrades answers WebSocket handshakes with 403.
type refuseUpgrades struct{ http.RoundTripper }

func (r refuseUpgrades) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Upgrade") == "" {
		return r.RoundTripper.RoundTrip(req)
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// checkIdle keeps a connection without messages for longer than the proxy's timeouts.
func checkIdle(t *testing.T, proxy *runningProxy) {
	c := proxy.connect(t, "127.0.0.2", nil)
	select {
	case <-c.received:
		require.Fail(t, "the idle connection has ended", "%v", c.end)
	case <-time.After(2 * idleTimeout):
	}
	assert.Equal(t, "127.0.0.2", c.whoAmI())
	c.close()
}

// TestReverseProxies_CloseWithoutPings shows that the timeouts are in force, so that it is
// the pings that keep a connection open.
func TestReverseProxies_CloseWithoutPings(t *testing.T) {
	needManyLoopbacks(t)
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			node := serve(t, "tcp", withHealth(newRouter(behindProxy("tcp", time.Hour))))
			c := program.startIdle(t, "tcp", node).connect(t, "127.0.0.2", nil)
			select {
			case _, ok := <-c.received:
				assert.False(t, ok)
			case <-time.After(timeout):
				require.Fail(t, "the idle connection is still open")
			}
		})
	}
}

// TestReverseProxies_PassEventsAtOnce opens a connection over HTTP. Its response has no end that would flush a buffer.
func TestReverseProxies_PassEventsAtOnce(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			node := serve(t, "tcp", withHealth(newRouter(behindProxy("tcp", time.Hour))))
			proxy := program.start(t, [3]string{node, node, node})
			transport := proxy.transport("127.0.0.1")
			defer transport.CloseIdleConnections()
			web := &http.Client{Transport: transport, Timeout: 3 * timeout}
			resp, err := web.Post("https://"+proxy.host()+"/ws/http?open", "text/plain", strings.NewReader(`{"mode":"stream"}`))
			require.NoError(t, err)
			defer resp.Body.Close() //nolint:errcheck // only read from
			for lines := bufio.NewScanner(resp.Body); lines.Text() != "event: open"; {
				require.True(t, lines.Scan(), "the response has ended: %v", lines.Err())
			}
		})
	}
}
