package inspect_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestConns_ListsOfManyTakeLittleMemory has as many connections as a large node. An answer takes a
// pointer per connection, and what the rows of one page take.
func TestConns_ListsOfManyTakeLittleMemory(t *testing.T) {
	n := newCluster(t, 1)[0]
	conns := testscale.Tiers(5_000, 10_000, 100_000)
	openMany(t, n.router, conns)
	for name, query := range map[string]object{
		"all": {}, "slow": {"slow": true}, "prefix": {"ip": "192.0.2.0/24"}, "tenant": {"tenant": "many"}, "user": {"tenant": "many", "user": "user7"},
	} {
		n.post(t, inspect.ViewConns, query)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result := n.post(t, inspect.ViewConns, query)
		runtime.ReadMemStats(&after)
		assert.LessOrEqual(t, len(rows(t, result)), 100)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32*conns+2<<20), name)
	}
	assert.EqualValues(t, conns, n.post(t, inspect.ViewConns, object{"tenant": "many"})["total"])
	assert.EqualValues(t, 1, n.post(t, inspect.ViewConns, object{"tenant": "many", "user": "user7"})["total"])
}

// BenchmarkCalls measures the latency of calls while operators trace, and list or search once per
// second, and without that, in turns, on a node with 100,000 connections. A page asks once in 5
// seconds. An operation is one turn of both.
func BenchmarkCalls(b *testing.B) {
	n := newNode(b, nil)
	openMany(b, n.router, 100_000)
	client := routertest.Dial(b, n.router, routertest.Token("caller"))
	actions := []struct {
		action inspect.Action
		arg    object
	}{{inspect.ViewConns, object{}}, {inspect.ViewConns, object{"ip": "192.0.2.0/24"}}, {inspect.ViewConns, object{"tenant": "many"}}, {inspect.ViewTopics, object{}}}
	var latencies [2][]time.Duration
	answers := 0
	for b.Loop() {
		for kind := range latencies {
			var busy atomic.Bool
			var wg sync.WaitGroup
			busy.Store(kind == 1)
			wg.Go(func() {
				if kind == 0 {
					return
				}
				trace := object{"id": n.post(b, inspect.StartTrace, object{"type": "JOIN", "seconds": 300})["id"]}
				defer n.post(b, inspect.StopTrace, trace)
				for busy.Load() {
					a := actions[answers%len(actions)]
					n.post(b, a.action, a.arg)
					n.post(b, inspect.ViewTrace, trace)
					answers++
					time.Sleep(time.Second)
				}
			})
			for range 2_000 {
				time.Sleep(200 * time.Microsecond) // below Limits.MessagesPerConn
				start := time.Now()
				routertest.Call[Said](client, Join{"news"})
				latencies[kind] = append(latencies[kind], time.Since(start))
			}
			busy.Store(false)
			wg.Wait()
		}
	}
	for kind, name := range []string{"alone", "inspected"} {
		slices.Sort(latencies[kind])
		b.ReportMetric(float64(latencies[kind][len(latencies[kind])*99/100].Microseconds()), "p99-us-"+name)
	}
	b.ReportMetric(float64(answers)/float64(b.N), "answers/op")
}

// openMany opens connections of one tenant that send nothing.
func openMany(t testing.TB, r *router.Router, conns int) {
	for i := range conns {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		for key, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
			"Authorization": fmt.Sprintf("Bearer many:user%d", i),
		} {
			req.Header.Set(key, value)
		}
		req.RemoteAddr = fmt.Sprintf("192.0.%d.%d:1", i/250%250, i%250)
		idle := &idleConn{closed: make(chan struct{})}
		t.Cleanup(func() { _ = idle.Close() })
		w := &hijacker{ResponseRecorder: httptest.NewRecorder(), conn: idle}
		r.ServeHTTP(w, req)
		require.True(t, w.hijacked, "%s", w.Body)
	}
}

// An idleConn is a peer that sends nothing and takes everything.
type idleConn struct {
	net.Conn

	closed chan struct{}
	once   sync.Once
}

func (c *idleConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, io.EOF
}

func (c *idleConn) Write(p []byte) (int, error) { return len(p), nil }

func (c *idleConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (*idleConn) SetDeadline(time.Time) error      { return nil }
func (*idleConn) SetReadDeadline(time.Time) error  { return nil }
func (*idleConn) SetWriteDeadline(time.Time) error { return nil }

func (*idleConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

type hijacker struct {
	*httptest.ResponseRecorder

	conn     *idleConn
	hijacked bool
}

func (w *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return w.conn, bufio.NewReadWriter(bufio.NewReaderSize(w.conn, 16), bufio.NewWriterSize(w.conn, 16)), nil
}
