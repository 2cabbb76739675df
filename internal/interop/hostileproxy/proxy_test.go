package hostileproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/hostileproxy"
)

// timeout bounds what must happen, and silence is how long what must not happen is waited for.
const (
	timeout = 10 * time.Second
	silence = 50 * time.Millisecond
)

// A server echoes bodies of POST, and bytes after an upgrade, after its greeting.
type server struct {
	url    string
	bodies chan string // what a POST has received, an error included
	sent   chan string // what upgraded connections have received
}

func startServer(t *testing.T) *server {
	s := &server{bodies: make(chan string, 100), sent: make(chan string, 100)}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		s.upgrade(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.bodies <- string(body) + "..."
		return
	}
	s.bodies <- string(body)
	_, _ = w.Write(body)
}

func (s *server) upgrade(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the test ends
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	_ = rw.Flush()
	_, _ = conn.Write([]byte("hello\n"))
	for lines := bufio.NewScanner(rw); lines.Scan(); {
		s.sent <- lines.Text()
		_, _ = fmt.Fprintln(conn, lines.Text())
	}
}

// A socket is a connection to a proxy.
type socket struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *hostileproxy.Proxy) *socket {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	return &socket{t, conn, bufio.NewReader(conn)}
}

// request sends a request and returns the status and the body of the answer.
func (s *socket) request(head, body string) (status int, answer string, err error) {
	s.t.Helper()
	_, err = fmt.Fprintf(s, "%s /ws HTTP/1.1\r\nHost: example.com\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
	require.NoError(s.t, err)
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// upgrade returns the status of an upgrade. After 101, the socket is the upgraded connection.
func (s *socket) upgrade() int {
	s.t.Helper()
	_, err := io.WriteString(s, "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	require.NoError(s.t, err)
	resp, err := http.ReadResponse(s.r, nil)
	require.NoError(s.t, err)
	return resp.StatusCode
}

func (s *socket) line() string {
	s.t.Helper()
	line, err := s.r.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSuffix(line, "\n")
}

// isSilent reports whether nothing arrives, not even the end.
func (s *socket) isSilent() bool {
	_ = s.SetReadDeadline(time.Now().Add(silence))
	_, err := s.r.ReadByte()
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func (s *server) receive(t *testing.T, from chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-time.After(timeout):
		require.Fail(t, "the server has received nothing")
		return ""
	}
}

func TestProxy_ForwardsWithoutFaults(t *testing.T) {
	server := startServer(t)
	p := hostileproxy.Start(t, server.url, hostileproxy.RefuseUpgrades)
	p.Use()
	ws := dial(t, p)
	require.Equal(t, http.StatusSwitchingProtocols, ws.upgrade())
	assert.Equal(t, "hello", ws.line())
	_, _ = fmt.Fprintln(ws, "echo")
	assert.Equal(t, "echo", ws.line())

	status, answer, err := dial(t, p).request("POST", "body")
	require.NoError(t, err)
	assert.Equal(t, []any{http.StatusOK, "body"}, []any{status, answer})
}

func TestProxy_RefusesAndDelaysUpgrades(t *testing.T) {
	server := startServer(t)
	p := hostileproxy.Start(t, server.url, hostileproxy.RefuseUpgrades)
	assert.Equal(t, http.StatusForbidden, dial(t, p).upgrade())
	status, _, err := dial(t, p).request("GET", "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, "other requests pass")

	p.Use(hostileproxy.DelayUpgrades(silence))
	start := time.Now()
	require.Equal(t, http.StatusSwitchingProtocols, dial(t, p).upgrade())
	assert.GreaterOrEqual(t, time.Since(start), silence)
}

func TestProxy_ResetsUpgradedConnections(t *testing.T) {
	p := hostileproxy.Start(t, startServer(t).url, hostileproxy.ResetUpgraded(silence))
	ws := dial(t, p)
	require.Equal(t, http.StatusSwitchingProtocols, ws.upgrade())
	_, err := io.ReadAll(ws.r)
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestProxy_MutesDirections(t *testing.T) {
	for name, c := range map[string]struct {
		fault    hostileproxy.Fault
		up, down bool
	}{
		"mute": {hostileproxy.MuteUpgraded, false, false},
		"up":   {hostileproxy.OnlyUp, true, false},
		"down": {hostileproxy.OnlyDown, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			ws := dial(t, hostileproxy.Start(t, server.url, c.fault))
			require.Equal(t, http.StatusSwitchingProtocols, ws.upgrade())
			if c.down {
				assert.Equal(t, "hello", ws.line())
			}
			_, err := fmt.Fprintln(ws, "echo")
			require.NoError(t, err)
			if c.up {
				assert.Equal(t, "echo", server.receive(t, server.sent))
			}
			assert.True(t, ws.isSilent())
			assert.Empty(t, server.sent, "the server has received what it must not")
		})
	}
}

func TestProxy_HoldsHalfOfABody(t *testing.T) {
	server := startServer(t)
	p := hostileproxy.Start(t, server.url, hostileproxy.HoldBodies(2))
	first := dial(t, p)
	_, answer, err := first.request("POST", "first")
	require.NoError(t, err)
	assert.Equal(t, "first", answer)
	assert.Equal(t, "first", server.receive(t, server.bodies))

	_, err = io.WriteString(first, "POST /ws HTTP/1.1\r\nHost: example.com\r\nContent-Length: 6\r\n\r\nsecond")
	require.NoError(t, err)
	assert.True(t, first.isSilent())
	require.NoError(t, first.Close())
	assert.Equal(t, "sec...", server.receive(t, server.bodies), "until the client gives up")
}

func TestProxy_DropsResponsesThatTheServerHasSent(t *testing.T) {
	server := startServer(t)
	p := hostileproxy.Start(t, server.url, hostileproxy.DropResponses(3))
	for n := range 6 {
		_, answer, err := dial(t, p).request("POST", fmt.Sprint(n))
		assert.Equal(t, fmt.Sprint(n), server.receive(t, server.bodies))
		if n%3 == 2 {
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(n), answer)
	}
}
