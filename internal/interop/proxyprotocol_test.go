package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/interop/proxytest"
	"github.com/penstock-go/penstock/router"
)

// serveProxyProtocol serves a router that trusts no proxy, behind the listener of the guide,
// with 127.0.0.1 as the load balancer.
func serveProxyProtocol(t *testing.T) string {
	balancers := netip.MustParsePrefix("127.0.0.1/32")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, &proxyproto.Listener{
		Listener: listener,
		ConnPolicy: func(opts proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			peer, err := netip.ParseAddrPort(opts.Upstream.String())
			if err == nil && balancers.Contains(peer.Addr().Unmap()) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.REJECT, nil
		},
		ReadHeaderTimeout: timeout,
	}, newRouter(router.Options{}))
	return listener.Addr().String()
}

func headerFrom(version byte, client string) *proxyproto.Header {
	source := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client))
	return proxyproto.HeaderProxyFromAddrs(version, source, &net.TCPAddr{IP: source.IP, Port: 443})
}

// dialBehind connects from an address, and sends header, if there is one, before the handshake.
func dialBehind(t *testing.T, addr, from string, header *proxyproto.Header) (*websocket.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil && header != nil {
			_, err = header.WriteTo(conn)
		}
		return conn, err
	}}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+addr, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport},
		HTTPHeader: http.Header{"X-Forwarded-For": {"198.51.100.9"}},
	})
	return ws, err
}

func TestPROXYProtocol_ClientAddressIsInTheHeader(t *testing.T) {
	addr := serveProxyProtocol(t)
	for _, tt := range []struct {
		version      byte
		client, want string
	}{
		{1, "203.0.113.9:5000", "203.0.113.9"},
		{2, "203.0.113.9:5000", "203.0.113.9"},
		{1, "[2001:db8::1]:5000", "2001:db8::1"},
		{2, "[2001:db8::1]:5000", "2001:db8::1"},
	} {
		t.Run(fmt.Sprintf("version %d from %s", tt.version, tt.client), func(t *testing.T) {
			ws, err := dialBehind(t, addr, "127.0.0.1", headerFrom(tt.version, tt.client))
			require.NoError(t, err)
			c := newClient(t, ws)
			assert.Equal(t, tt.want, c.whoAmI())
			c.close()
		})
	}
}

func TestPROXYProtocol_PolicyOfTheGuide(t *testing.T) {
	needManyLoopbacks(t)
	addr := serveProxyProtocol(t)
	_, err := dialBehind(t, addr, "127.0.0.1", nil)
	require.Error(t, err, "a load balancer must send the header")
	_, err = dialBehind(t, addr, "127.0.0.2", headerFrom(2, "203.0.113.9:5000"))
	require.Error(t, err, "another peer must not send it")
	ws, err := dialBehind(t, addr, "127.0.0.2", nil)
	require.NoError(t, err)
	c := newClient(t, ws)
	assert.Equal(t, "127.0.0.2", c.whoAmI())
	c.close()
}

// TestPROXYProtocol_HAProxy is a proxy that forwards TCP.
func TestPROXYProtocol_HAProxy(t *testing.T) {
	needManyLoopbacks(t)
	program := proxytest.Program(t, "haproxy")
	dir, addr := shortTempDir(t), freeport.Address()
	write(t, filepath.Join(dir, "haproxy.cfg"), fmt.Sprintf(`
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s

listen web
	bind %s
	server node1 %s send-proxy-v2
`, addr, serveProxyProtocol(t)))
	proxytest.Run(t, program, dir, []string{"-db", "-f", filepath.Join(dir, "haproxy.cfg")}, addr)
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		ws, err := dialBehind(t, addr, from, nil)
		require.NoError(t, err)
		c := newClient(t, ws)
		assert.Equal(t, from, c.whoAmI())
		c.close()
	}
}

// TestPROXYProtocol_ProgramOfTheGuide builds the program and checks which peers it answers.
func TestPROXYProtocol_ProgramOfTheGuide(t *testing.T) {
	dir, err := os.MkdirTemp(".", "_program") //nolint:usetesting // it must be inside the module, so that its packages are found
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	addr := freeport.Address()
	write(t, filepath.Join(dir, "main.go"), substitute(t, guideBlock(t, "golang"), ":8080", addr, "10.0.0.0/8", "127.0.0.1/32"))
	binary := filepath.Join(t.TempDir(), "server")
	output, err := exec.Command("go", "build", "-o", binary, "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s", output)
	proxytest.Run(t, binary, dir, nil, addr)
	status := func(header *proxyproto.Header) int {
		conn := dialRaw(t, addr)
		if header != nil {
			_, err := header.WriteTo(conn)
			require.NoError(t, err)
		}
		_, err := io.WriteString(conn, handshake)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusSwitchingProtocols, status(headerFrom(2, "203.0.113.9:5000")))
	assert.NotEqual(t, http.StatusSwitchingProtocols, status(nil), "without the header")
}
