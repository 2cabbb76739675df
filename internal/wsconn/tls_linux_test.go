//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A tlsServer echoes messages over TLS on the goroutines of event loops.
type tlsServer struct {
	addr   string
	server *httptest.Server
	conns  chan *wsconn.Conn
	ended  chan struct{} // receives for each connection that has ended
}

func serveTLS(t *testing.T, opts *wsconn.Options) *tlsServer {
	s := &tlsServer{conns: make(chan *wsconn.Conn, 100), ended: make(chan struct{}, 100)}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &inlineHandler{noopHandler: newHandler(), answer: echoOf, ended: func() { s.ended <- struct{}{} }}
		var err error
		if h.conn, err = wsconn.Accept(w, r, "", opts, h); !assert.NoError(t, err) {
			return
		}
		s.conns <- h.conn
		go h.Serve()
	}))
	t.Cleanup(s.server.Close)
	s.addr = s.server.Listener.Addr().String()
	return s
}

func (s *tlsServer) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the connection does not end")
	}
}

func awaitIdle(t *testing.T, c *wsconn.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return wsconn.Idle(c) }, 10*time.Second, 100*time.Microsecond)
}

// upgrade performs the WebSocket handshake and returns both ends.
func (s *tlsServer) upgrade(t *testing.T, conn net.Conn) (*peer, *wsconn.Conn) {
	t.Helper()
	_, err := io.WriteString(conn, handshake)
	require.NoError(t, err)
	p := &peer{Conn: conn, r: bufio.NewReader(conn)}
	resp, err := http.ReadResponse(p.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	c := <-s.conns
	require.True(t, wsconn.Watched(c))
	return p, c
}

func (s *tlsServer) dial(t *testing.T, config *tls.Config) (*peer, *wsconn.Conn) {
	t.Helper()
	config.InsecureSkipVerify = true
	return s.upgrade(t, tls.Client(dialTCP(t, s.addr), config))
}

func (s *tlsServer) dialRecords(t *testing.T) (*peer, *recordConn, *wsconn.Conn) {
	t.Helper()
	rc := dialRecords(t, dialTCP(t, s.addr))
	p, c := s.upgrade(t, rc)
	return p, rc, c
}

// requireEcho sends a message and requires its echo.
func requireEcho(t *testing.T, p *peer, payload string) {
	t.Helper()
	_, err := p.Write(clientFrame(fin|text, payload))
	require.NoError(t, err)
	requireNext(t, p, payload)
}

func requireNext(t *testing.T, p *peer, payload string) {
	t.Helper()
	got, err := p.read()
	require.NoError(t, err)
	require.True(t, got == serverFrame{fin | text, payload}, "got %v", got)
}

var tlsVersions = map[string]*tls.Config{
	"TLS 1.2": {MaxVersion: tls.VersionTLS12},
	"TLS 1.3": {MinVersion: tls.VersionTLS13},
}

func forEachTLSVersion(t *testing.T, test func(t *testing.T, config *tls.Config)) {
	for name, config := range tlsVersions {
		t.Run(name, func(t *testing.T) { test(t, config.Clone()) })
	}
}

func TestTLS_ParkedConnectionHasNoGoroutine(t *testing.T) {
	forEachTLSVersion(t, func(t *testing.T, config *tls.Config) {
		s := serveTLS(t, options())
		for range 10 {
			p, c := s.dial(t, config)
			requireEcho(t, p, "hello")
			awaitIdle(t, c)
		}
		require.Eventually(t, func() bool {
			stacks := make([]byte, 1<<20)
			return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("wsconn.(*Conn)"))
		}, time.Minute, time.Millisecond)
	})
}

// TestTLS_ContinuesAfterDeadlineInsideRecord fails if crypto/tls changes what tlsConn depends on.
func TestTLS_ContinuesAfterDeadlineInsideRecord(t *testing.T) {
	t.Parallel()
	forEachTLSVersion(t, func(t *testing.T, config *tls.Config) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
		config.InsecureSkipVerify = true
		held := &heldConn{Conn: dialTCP(t, listener.Addr().String())}
		client := tls.Client(held, config)
		accepted, err := listener.Accept()
		require.NoError(t, err)
		server := tls.Server(accepted, testcert.ServerConfig())
		defer func() { _ = server.Close() }()
		shaken := make(chan error, 1)
		go func() { shaken <- server.Handshake() }()
		require.NoError(t, client.Handshake())
		require.NoError(t, <-shaken)

		held.holds = true
		_, err = client.Write([]byte("parts"))
		require.NoError(t, err)
		record := held.take()
		buf := make([]byte, 100)
		expired := func() {
			n, err := server.Read(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Zero(t, n)
		}
		for i := range record {
			require.NoError(t, server.SetReadDeadline(time.Unix(1, 0)))
			expired()
			_, err = held.Conn.Write(record[i : i+1])
			require.NoError(t, err)
			require.NoError(t, server.SetReadDeadline(time.Now().Add(2*time.Millisecond)))
			if i < len(record)-1 {
				expired()
			}
		}
		require.NoError(t, server.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := server.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "parts", string(buf[:n]))

		// Records that have arrived with the first one are returned in spite of the deadline.
		for _, s := range []string{"one", "two", "three"} {
			_, err = client.Write([]byte(s))
			require.NoError(t, err)
		}
		_, err = held.Conn.Write(held.take())
		require.NoError(t, err)
		for i, want := range []string{"one", "two", "three"} {
			if i > 0 {
				require.NoError(t, server.SetReadDeadline(time.Unix(1, 0)))
			}
			n, err = server.Read(buf)
			require.NoError(t, err)
			require.Equal(t, want, string(buf[:n]))
		}
		expired()
	})
}

// A heldConn can keep what is written.
type heldConn struct {
	net.Conn

	holds bool
	held  []byte
}

func (c *heldConn) Write(p []byte) (int, error) {
	if c.holds {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *heldConn) take() []byte {
	defer func() { c.held = nil }()
	return c.held
}

// TestTLS_ParksInsideRecords splits a record at every byte.
func TestTLS_ParksInsideRecords(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, options())
	p, rc, c := s.dialRecords(t)
	for i, n := 1, 2; i < n; i++ {
		record := rc.message("split")
		n = len(record)
		_, err := rc.Conn.Write(record[:i])
		require.NoError(t, err)
		awaitIdle(t, c)
		_, err = rc.Conn.Write(record[i:])
		require.NoError(t, err)
		requireNext(t, p, "split")
	}
}

func TestTLS_ReadsAllRecordsOfASegment(t *testing.T) {
	opts := options()
	opts.BufferBytes = 512 // shorter than a record
	s := serveTLS(t, opts)
	p, rc, c := s.dialRecords(t)
	awaitIdle(t, c)
	var segment []byte
	var want []string
	for i := range 100 {
		payload := fmt.Sprintf("%d %s", i, strings.Repeat("x", i*i%3000))
		want = append(want, payload)
		frame := clientFrame(fin|text, payload)
		for _, part := range [][]byte{frame[:1], frame[1:5], nil, frame[5:]} {
			segment = append(segment, rc.record(recordApplication, part, i%7)...)
		}
	}
	last := clientFrame(fin|text, "two frames in a record")
	segment = append(segment, rc.record(recordApplication, append(last, last...), 100)...)
	want = append(want, "two frames in a record", "two frames in a record")
	_, err := rc.Conn.Write(segment)
	require.NoError(t, err)
	for _, payload := range want {
		requireNext(t, p, payload)
	}
	awaitIdle(t, c)
}

// TestTLS_AnswersKeyUpdates sends key updates after the write deadline of the last write has passed.
func TestTLS_AnswersKeyUpdates(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.WriteTimeout = 500 * time.Millisecond // a busy machine does not write at once
	s := serveTLS(t, opts)
	p, rc, c := s.dialRecords(t)
	for i := range 2 {
		requireEcho(t, p, "old keys")
		awaitIdle(t, c)
		time.Sleep(2 * opts.WriteTimeout)
		// It is split into two records, between which the connection is parked.
		for _, part := range [][]byte{{handshakeKeyUpdate, 0, 0}, {1, 1}} {
			_, err := rc.Conn.Write(rc.record(recordHandshake, part, 0))
			require.NoError(t, err)
			awaitIdle(t, c)
		}
		rc.out.update()
		requireEcho(t, p, "new keys")
		require.Equal(t, i+1, rc.updates)
		_, err := rc.Conn.Write(rc.record(recordHandshake, []byte{handshakeKeyUpdate, 0, 0, 1, 0}, 0))
		require.NoError(t, err)
		rc.out.update()
	}
}

func TestTLS_HandlesAlertsAndInvalidRecords(t *testing.T) {
	for name, test := range map[string]struct {
		send func(*recordConn) []byte
		want error // what the client reads; nil if the connection stays open
	}{
		"close_notify":                  {send: func(c *recordConn) []byte { return c.alert(1, alertCloseNotify) }, want: errNoCloseNotify},
		"close_notify behind a message": {send: func(c *recordConn) []byte { return append(c.message(""), c.alert(1, alertCloseNotify)...) }, want: errNoCloseNotify},
		"fatal alert":                   {send: func(c *recordConn) []byte { return c.alert(2, alertHandshakeFailure) }, want: errNoCloseNotify},
		"user_canceled":                 {send: func(c *recordConn) []byte { return c.alert(1, alertUserCanceled) }},
		"invalid tag":                   {send: func(c *recordConn) []byte { b := c.message("x"); b[len(b)-1] ^= 1; return b }, want: alertError(alertBadRecordMAC)},
		"record too long":               {send: func(*recordConn) []byte { return []byte{recordApplication, 3, 3, 0xff, 0xff} }, want: alertError(alertRecordOverflow)},
		"unexpected handshake message":  {send: func(c *recordConn) []byte { return c.record(recordHandshake, []byte{20, 0, 0, 1, 0}, 0) }, want: alertError(alertUnexpectedMessage)},
		"unexpected message, then another": {send: func(c *recordConn) []byte {
			return append(c.record(recordHandshake, []byte{20, 0, 0, 1, 0}, 0), c.message("x")...)
		}, want: alertError(alertUnexpectedMessage)},
		"too many ignored records": {send: func(c *recordConn) (b []byte) {
			for range 100 {
				b = append(b, c.record(recordApplication, nil, 0)...)
			}
			return b
		}, want: alertError(alertUnexpectedMessage)},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveTLS(t, options())
			p, rc, c := s.dialRecords(t)
			requireEcho(t, p, "before")
			awaitIdle(t, c)
			_, err := rc.Conn.Write(test.send(rc))
			require.NoError(t, err)
			if test.want == nil {
				requireEcho(t, p, "behind")
				return
			}
			s.awaitEnd(t)
			for err == nil {
				_, err = p.read()
			}
			if !errors.Is(err, syscall.ECONNRESET) { // it drops what was sent and not read
				require.Equal(t, test.want, err)
			}
		})
	}
}
