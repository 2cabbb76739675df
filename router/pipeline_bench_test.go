package router_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

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
