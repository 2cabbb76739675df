package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// benchmark sends messages over a socket one at a time and waits for each
// answer. The results include the client.
func benchmark(b *testing.B, policy limit.Policy, text string) {
	r := router.New(&router.Options{Limits: rarelyReached()})
	r.UseIngress(ratelimit.New(memory.NewLimiter(policy), nil))
	router.RPC(r, echo)
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(b.Context(), server.URL, nil)
	require.NoError(b, err)
	defer ws.CloseNow()
	message := []byte(text)
	b.ReportAllocs()
	for b.Loop() {
		if err := ws.Write(context.Background(), websocket.MessageText, message); err != nil {
			b.Fatal(err)
		}
		_, r, err := ws.Reader(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := discard(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMessage measures a call that passes all seven stages.
func BenchmarkMessage(b *testing.B) {
	benchmark(b, limit.PerSecond(1_000_000), `{"type":"ECHO","meta":{"timestamp":1730000000000,"correlationId":"b7c1"},"payload":{"n":7}}`)
}

// BenchmarkRejected measures small and large messages that a rate limit rejects
// before their payload is read.
func BenchmarkRejected(b *testing.B) {
	for name, pad := range map[string]int{"200B": 100, "16kB": 16_000} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, limit.PerHour(1), `{"type":"ECHO","meta":{"timestamp":1730000000000,"correlationId":"b7c1"},"payload":{"n":7,"pad":"`+strings.Repeat("x", pad)+`"}}`)
		})
	}
}

// An Update is an item of a stream, or an event.
type Update struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (Update) MessageType() string { return "UPDATE" }

// benchmarkItems measures a handler of Count that sends b.N updates to a client that reads them as
// fast as it can.
func benchmarkItems(b *testing.B, register func(*router.Router)) {
	r := router.New(&router.Options{Limits: rarelyReached(), Timeouts: router.Timeouts{Call: time.Hour}})
	register(r)
	server := httptest.NewServer(r)
	defer server.Close()
	client := dialStream(b, server)
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, client.send(fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"b7c1"},"payload":{"to":%d}}`, b.N)))
	for range b.N + 1 {
		if _, err := client.next(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

// streamUpdates registers a stream of updates.
func streamUpdates(r *router.Router) {
	router.Stream(r, func(_ *router.Context, m Count) iter.Seq2[Update, error] {
		return func(yield func(Update, error) bool) {
			for n := 0; n < m.To && yield(Update{n, "some text"}, nil); n++ {
				continue
			}
		}
	})
}

// sendUpdates registers a call that sends updates as events.
func sendUpdates(r *router.Router) {
	router.RPC(r, func(ctx *router.Context, m Count) (Counted, error) {
		for n := range m.To {
			if err := ctx.SendWait(Update{n, "some text"}); err != nil {
				return Counted{}, err
			}
		}
		return Counted{}, nil
	})
}

// BenchmarkStream measures the items of a stream.
func BenchmarkStream(b *testing.B) { benchmarkItems(b, streamUpdates) }

// BenchmarkSendWait measures events, for comparison.
func BenchmarkSendWait(b *testing.B) { benchmarkItems(b, sendUpdates) }

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

// A Post is a message of about 200 bytes with its envelope.
type Post struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (Post) MessageType() string { return "POST" }

// A Posted answers a Post.
type Posted struct {
	Room string `json:"room"`
	Text string `json:"text"`
	N    int    `json:"n"`
}

func (Posted) MessageType() string { return "POSTED" }

// A Note is a Post without an answer.
type Note Post

func (Note) MessageType() string { return "NOTE" }

// BenchmarkPipeline measures the stages of the pipeline without a socket: a message whose text differs
// from that of the 255 before it, with a limit per connection and type.
func BenchmarkPipeline(b *testing.B) {
	for name, tt := range map[string]struct {
		typ    string
		policy limit.Policy
	}{
		"call":     {"POST", limit.PerSecond(1_000_000_000).Burst(2_000_000)},
		"event":    {"NOTE", limit.PerSecond(1_000_000_000).Burst(2_000_000)},
		"rejected": {"POST", limit.PerHour(1)},
	} {
		b.Run(name, func(b *testing.B) {
			r := router.New(&router.Options{Limits: rarelyReached(), OnLimitExceeded: func(router.LimitExceeded) {}})
			r.UseIngress(ratelimit.New(memory.NewLimiter(tt.policy), &ratelimit.Options{Key: ratelimit.KeyPerUserPerType}))
			router.RPC(r, func(_ *router.Context, m Post) (Posted, error) { return Posted(m), nil })
			router.On(r, func(*router.Context, Note) error { return nil })
			conn := connectNowhere(b, r)
			texts := make([][]byte, 256)
			for i := range texts {
				texts[i] = fmt.Appendf(nil, `{"type":"%s","meta":{"timestamp":1730000000000,"correlationId":"b7c1-%d"},"payload":{"room":"general","text":"a text %d of the length that is usual in a chat, and different each time, number %d","n":%d}}`, tt.typ, i, i*7919, i, i)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				router.Receive(conn, texts[n%len(texts)])
				n++
			}
		})
	}
}

// connectNowhere opens a connection to a client that sends nothing and receives everything.
func connectNowhere(b testing.TB, r *router.Router) *router.Conn {
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the client does not answer the close frame
		_ = r.Shutdown(ctx)
	})
	socket := nowhere{closed: make(chan struct{}), reads: make(chan struct{}, 1)}
	r.ServeHTTP(&hijackable{httptest.NewRecorder(), socket}, handshakeRequest())
	<-socket.reads
	for conn := range r.Conns() {
		return conn
	}
	b.Fatal("no connection")
	return nil
}

// A nowhere is a socket whose peer sends nothing and receives everything.
type nowhere struct {
	net.Conn

	closed chan struct{}
	reads  chan struct{} // receives before the first Read blocks
}

func (n nowhere) Read([]byte) (int, error) {
	select {
	case n.reads <- struct{}{}:
	default:
	}
	<-n.closed
	return 0, net.ErrClosed
}

func (n nowhere) Write(p []byte) (int, error)      { return len(p), nil }
func (n nowhere) SetDeadline(time.Time) error      { return nil }
func (n nowhere) SetReadDeadline(time.Time) error  { return nil }
func (n nowhere) SetWriteDeadline(time.Time) error { return nil }

func (n nowhere) Close() error {
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
	return nil
}

// BenchmarkTopic_Declared publishes without subscribers on this node, and subscribes and
// unsubscribes, with and without 100 declared patterns.
func BenchmarkTopic_Declared(b *testing.B) {
	for _, patterns := range []int{0, 100} {
		r := router.New(&router.Options{Limits: rarelyReached()})
		for i := range patterns {
			router.Topic(r, fmt.Sprintf("kind%d/{id}", i), nil)
		}
		b.Run(fmt.Sprintf("patterns=%d/subscribers=0", patterns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Publish("kind7/4711", Nothing{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		client := routertest.Dial(b, r)
		client.Freeze()
		for c := range r.Conns() {
			b.Run(fmt.Sprintf("patterns=%d/subscribe", patterns), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.Subscribe("kind7/4711"); err != nil {
						b.Fatal(err)
					}
					c.Unsubscribe("kind7/4711")
				}
			})
		}
	}
}
