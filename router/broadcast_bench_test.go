package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// BenchmarkPublish_Subscribers measures a publication to many connections without sockets: "queue" is
// the time of Publish on one processor, before anything is written, and "all" includes the writers.
func BenchmarkPublish_Subscribers(b *testing.B) {
	for _, subscribers := range []int{100, 9000} {
		b.Run(fmt.Sprintf("subscribers=%d/queue", subscribers), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			broadcast(b, subscribers, b.StopTimer)
		})
		b.Run(fmt.Sprintf("subscribers=%d/all", subscribers), func(b *testing.B) { broadcast(b, subscribers, func() {}) })
	}
}

// broadcast publishes to subscribers, and calls queued after each Publish.
func broadcast(b *testing.B, subscribers int, queued func()) {
	var written atomic.Int64
	opened := make(chan struct{}, subscribers)
	r := router.New(&router.Options{Limits: rarelyReached(), OnOpen: func(_ context.Context, c *router.Conn) error {
		defer func() { opened <- struct{}{} }()
		return c.Subscribe("all")
	}})
	for range subscribers {
		serveDiscarding(b, r, &written)
	}
	for range subscribers {
		<-opened
	}
	m := Say{"all", "0123456789012345678901234567890123456789"}
	b.ReportAllocs()
	for b.Loop() {
		before := written.Load()
		if err := r.Publish("all", m); err != nil {
			b.Fatal(err)
		}
		queued()
		for written.Load() < before+int64(subscribers) {
			runtime.Gosched()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subscribers), "ns/delivery")
}

// serveDiscarding opens a connection that receives nothing and counts its writes in written.
func serveDiscarding(b *testing.B, r *router.Router, written *atomic.Int64) {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for key, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(key, value)
	}
	conn := &discardingConn{written: written, closed: make(chan struct{})}
	b.Cleanup(func() { _ = conn.Close() })
	w := discardingWriter{httptest.NewRecorder(), conn}
	r.ServeHTTP(w, req)
	require.True(b, conn.upgraded)
}

// A discardingConn is a peer that sends nothing and takes everything at once.
type discardingConn struct {
	net.Conn
	written  *atomic.Int64
	upgraded bool
	closed   chan struct{}
	close    sync.Once
}

func (c *discardingConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, io.EOF
}

func (c *discardingConn) Write(p []byte) (int, error) {
	c.written.Add(1)
	return len(p), nil
}

func (c *discardingConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return nil
}

func (*discardingConn) SetDeadline(time.Time) error      { return nil }
func (*discardingConn) SetReadDeadline(time.Time) error  { return nil }
func (*discardingConn) SetWriteDeadline(time.Time) error { return nil }

func (*discardingConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

type discardingWriter struct {
	*httptest.ResponseRecorder
	conn *discardingConn
}

func (w discardingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.conn.upgraded = true
	return w.conn, bufio.NewReadWriter(bufio.NewReaderSize(w.conn, 16), bufio.NewWriterSize(w.conn, 16)), nil
}
