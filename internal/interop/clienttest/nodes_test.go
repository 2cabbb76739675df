package clienttest_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

const rooms = 3

var codec = cbor.New(nil)

// nodes are two routers with one broker behind one address, and a ledger of what they have done.
type nodes struct {
	t       *testing.T
	routers []*router.Router
	address string

	messages int          // of each history
	resumed  atomic.Int64 // sessions

	mu        sync.Mutex
	executed  map[int]int // how often each call was executed
	events    []int       // the events that were handled, in order
	published map[string]int
	confirmed map[int]string // outcome of each call of the server: "" or a code
	asked     int
}

func startNodes(t *testing.T, f faultCase) *nodes {
	t.Helper()
	n := &nodes{t: t, messages: 100_000, executed: map[int]int{}, published: map[string]int{}, confirmed: map[int]string{}}
	if f.forgetful {
		n.messages = 20
	}
	b := memory.NewBroker()
	for range 2 {
		opts := &router.Options{
			Broker: b, Logger: slog.New(slog.DiscardHandler), Codecs: []router.Codec{codec},
			Limits:   router.Limits{QueueMessages: 100_000, QueueBytes: 64 << 20, Concurrency: 10_000},
			Timeouts: router.Timeouts{Ping: 2 * time.Second, Call: 20 * time.Second},
		}
		if f.session {
			opts.Resume = router.ResumeOptions{Within: time.Minute}
		}
		r := router.New(opts)
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.SessionResumed && e.Code == "" {
				n.resumed.Add(1)
			}
		})
		n.register(r)
		t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
		n.routers = append(n.routers, r)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n.routers[rand.IntN(len(n.routers))].ServeHTTP(w, req)
	}))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	web.Start()
	t.Cleanup(web.Close)
	n.address = web.Listener.Addr().String()
	return n
}

func (n *nodes) register(r *router.Router) {
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: n.messages},
	})
	router.RPC(r, func(_ *router.Context, m ask) (answer, error) {
		if m.N%10 == 0 {
			return answer{}, errors.Errorf(errors.FailedPrecondition, "multiples of ten are not executed")
		}
		n.mu.Lock()
		n.executed[m.N]++
		n.mu.Unlock()
		if m.N%7 == 0 {
			time.Sleep(time.Duration(m.N%40) * time.Millisecond)
		}
		return answer(m), nil
	})
	router.On(r, func(_ *router.Context, m say) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, m.N)
		return nil
	})
	router.Stream(r, func(_ *router.Context, m export) iter.Seq2[row, error] {
		return func(yield func(row, error) bool) {
			for i := range m.N {
				if !yield(row{i}, nil) {
					return
				}
			}
		}
	})
}

// publish publishes numbered messages on all topics, each on a random node, until ctx is done.
func (n *nodes) publish(ctx context.Context, topic string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		n.publishNext(n.routers[random.IntN(len(n.routers))], topic)
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	}
}

func (n *nodes) publishNext(r *router.Router, topic string) {
	n.mu.Lock()
	number := n.published[topic] + 1
	n.mu.Unlock()
	err := r.Publish(topic, said{N: number}, router.Stored(context.Background(), nil))
	assert.NoError(n.t, err)
	n.mu.Lock()
	n.published[topic] = number
	n.mu.Unlock()
}

// publishAgain publishes now and then, until ctx is done.
func (n *nodes) publishAgain(ctx context.Context) {
	for ctx.Err() == nil {
		for i := range rooms {
			n.publishNext(n.routers[0], fmt.Sprintf("room/%d", i))
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// call calls all clients, again and again, until ctx is done.
func (n *nodes) call(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for ctx.Err() == nil {
		for _, r := range n.routers {
			for conn := range r.Conns() {
				n.mu.Lock()
				n.asked++
				number := n.asked
				n.mu.Unlock()
				calls.Go(func() {
					limited, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					reply, err := router.Call[confirmed](limited, conn, confirm{N: number})
					n.mu.Lock()
					defer n.mu.Unlock()
					n.confirmed[number] = string(errors.CodeOf(err))
					if err == nil && reply.N != number {
						n.confirmed[number] = fmt.Sprintf("the reply to %d is %d", number, reply.N)
					}
				})
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}
