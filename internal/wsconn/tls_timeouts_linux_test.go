//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

func TestTLS_MessageTimeoutAppliesInsideRecords(t *testing.T) {
	opts := options()
	opts.MessageTimeout = 50 * time.Millisecond
	s := serveTLS(t, opts)
	p, rc, _ := s.dialRecords(t)
	requireEcho(t, p, "in time")
	frame := clientFrame(fin|text, "late")
	_, err := rc.Conn.Write(append(rc.record(recordApplication, frame[:8], 0), rc.record(recordApplication, frame[8:], 0)[:10]...))
	require.NoError(t, err)
	got, err := p.read()
	require.NoError(t, err)
	require.Equal(t, serverFrame{fin | closing, "\x03\xf0message took too long"}, got)
}

func TestTLS_SilentPeerInsideRecordIsDisconnected(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.PingInterval, opts.PongTimeout = 50*time.Millisecond, 50*time.Millisecond
	s := serveTLS(t, opts)
	_, rc, _ := s.dialRecords(t)
	_, err := rc.Conn.Write(rc.message("x")[:10])
	require.NoError(t, err)
	s.awaitEnd(t)
}

func TestTLS_RegularCloseEndsWithCloseNotify(t *testing.T) {
	s := serveTLS(t, options())
	for name, begin := range map[string]func(*peer, *wsconn.Conn){
		"by the client": func(p *peer, _ *wsconn.Conn) { _, _ = p.Write(clientFrame(fin|closing, "\x03\xe8")) },
		"by the server": func(_ *peer, c *wsconn.Conn) { c.Close(1000, "") },
	} {
		t.Run(name, func(t *testing.T) {
			p, _, c := s.dialRecords(t)
			begin(p, c)
			got, err := p.read()
			require.NoError(t, err)
			require.Equal(t, serverFrame{fin | closing, "\x03\xe8"}, got)
			_, _ = p.Write(clientFrame(fin|closing, "\x03\xe8"))
			require.NoError(t, p.readEnd())
			s.awaitEnd(t)
		})
	}
}

// block sends until the kernel takes no more for a peer that does not read.
func block(t *testing.T, c *wsconn.Conn) {
	t.Helper()
	for before := -1; before != pending(c); time.Sleep(50 * time.Millisecond) {
		for pending(c) < 500_000 {
			require.NoError(t, send(c, strings.Repeat("x", 50_000)))
		}
		before = pending(c)
	}
}

func TestTLS_StuckPeerDelaysNoOther(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop, one flusher
	forEachTLSVersion(t, func(t *testing.T, config *tls.Config) {
		opts := options()
		opts.WriteTimeout, opts.CloseTimeout = time.Minute, 100*time.Millisecond
		s := serveTLS(t, opts)
		_, stuck := s.dial(t, config)
		block(t, stuck)
		require.NoError(t, send(stuck, "short"))
		p, c := s.dial(t, config)
		for range 10 {
			require.NoError(t, send(stuck, "short"))
			require.NoError(t, send(c, "from outside"))
			requireNext(t, p, "from outside")
			requireEcho(t, p, "inline")
		}
		stuck.Close(1000, "")
		s.awaitEnd(t)
	})
}

// TestTLS_ReadsWhileItsWriterWaits sends all messages before it reads the answers.
func TestTLS_ReadsWhileItsWriterWaits(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.WriteTimeout, opts.QueueBytes, opts.QueueMessages = time.Minute, 64<<20, 1<<20
	s := serveTLS(t, opts)
	conn := dialTCP(t, s.addr)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	require.NoError(t, conn.(*net.TCPConn).SetWriteBuffer(64<<10))
	p, _ := s.upgrade(t, tls.Client(conn, &tls.Config{InsecureSkipVerify: true}))
	const messages = 2500                // more than the buffers of the kernel hold
	payload := strings.Repeat("x", 3000) // less than maxTLSWriteNow
	for range messages {
		_, err := p.Write(clientFrame(fin|text, payload))
		require.NoError(t, err)
	}
	for range messages {
		requireNext(t, p, payload)
	}
}

func TestTLS_AbortEndsParkedAndStuckConnections(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, options())
	p, c := s.dial(t, &tls.Config{})
	requireEcho(t, p, "hello")
	awaitIdle(t, c)
	c.Abort()
	s.awaitEnd(t)
	_, stuck := s.dial(t, &tls.Config{})
	block(t, stuck)
	stuck.Abort()
	s.awaitEnd(t)
}
