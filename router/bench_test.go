package router_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

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
		dialNowhere(b, r, &written)
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
	<-dialNowhere(b, r, new(atomic.Int64)).reads
	for conn := range r.Conns() {
		return conn
	}
	b.Fatal("no connection")
	return nil
}

// A nowhere is a socket whose peer sends nothing and receives everything.
type nowhere struct {
	net.Conn

	closed  context.Context //nolint:containedctx // ends with the socket
	close   context.CancelFunc
	reads   chan struct{} // receives before the first Read blocks
	written *atomic.Int64 // calls of Write
}

func dialNowhere(b testing.TB, r *router.Router, written *atomic.Int64) nowhere {
	socket := nowhere{reads: make(chan struct{}, 1), written: written}
	socket.closed, socket.close = context.WithCancel(context.Background())
	b.Cleanup(socket.close)
	r.ServeHTTP(&hijackable{httptest.NewRecorder(), socket}, handshakeRequest())
	return socket
}

func (n nowhere) Read([]byte) (int, error) {
	select {
	case n.reads <- struct{}{}:
	default:
	}
	<-n.closed.Done()
	return 0, net.ErrClosed
}

func (n nowhere) Write(p []byte) (int, error)      { n.written.Add(1); return len(p), nil }
func (n nowhere) Close() error                     { n.close(); return nil }
func (n nowhere) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (n nowhere) SetDeadline(time.Time) error      { return nil }
func (n nowhere) SetReadDeadline(time.Time) error  { return nil }
func (n nowhere) SetWriteDeadline(time.Time) error { return nil }
