package wsconn_test

import (
	"bufio"
	"net"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// A discardConn accepts all writes at once, so that a benchmark measures the queue alone.
type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }

// discardingConn returns a connection whose frames go nowhere.
func discardingConn(b *testing.B, policy wsconn.SlowConsumerPolicy) *wsconn.Conn {
	server, client := net.Pipe()
	b.Cleanup(func() { _ = client.Close() })
	r := httptest.NewRequest("GET", "/", nil)
	for key, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		r.Header.Set(key, value)
	}
	opts := options()
	opts.SlowConsumer = policy
	c, err := wsconn.Accept(discardingWriter{httptest.NewRecorder(), discardConn{server}}, r, "", opts, newHandler())
	require.NoError(b, err)
	b.Cleanup(c.Release)
	return c
}

type discardingWriter struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w discardingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// BenchmarkConn_Queue measures queueing frames of a publication and writing them, in bursts. In
// the bursts with one key, conflation leaves one frame.
func BenchmarkConn_Queue(b *testing.B) {
	for _, tt := range []struct {
		name   string
		policy wsconn.SlowConsumerPolicy
		keys   int // 0: the frames have no key
		burst  int
	}{
		{"drop oldest, burst of 1", wsconn.DropOldest, 0, 1},
		{"drop oldest, burst of 64", wsconn.DropOldest, 0, 64},
		{"drop oldest, full queue", wsconn.DropOldest, 0, 4096},
		{"conflate, burst of 1", wsconn.Conflate, 1, 1},
		{"conflate, burst of 64, 64 keys", wsconn.Conflate, 64, 64},
		{"conflate, burst of 64, 1 key", wsconn.Conflate, 1, 64},
		{"conflate, burst of 4096, 512 keys", wsconn.Conflate, 512, 4096},
	} {
		b.Run(tt.name, func(b *testing.B) {
			c := discardingConn(b, tt.policy)
			frames := make([]*wsconn.Frame, max(tt.keys, 1))
			for i := range frames {
				f := wsconn.NewFrame()
				f.WriteString(`{"type":"POSITION","payload":{"x":1}}`)
				if f.Droppable(""); tt.keys > 0 {
					f.Droppable("POSITION\x00" + strconv.Itoa(i))
				}
				f.Seal()
				frames[i] = f
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				f := frames[n%len(frames)]
				f.Retain()
				_ = c.Queue(f)
				if n++; n%tt.burst == 0 {
					c.Flush()
				}
			}
		})
	}
}
