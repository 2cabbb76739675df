package router_test

import (
	"context"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A probe is the handler of a stream without end. It counts what its iterator does.
type probe struct {
	step     chan struct{} // if it is not nil, the iterator waits for it before each yield
	yields   atomic.Int64  // calls of yield
	sent     atomic.Int64  // of these, those that returned true
	deferred atomic.Int64  // iterators that have ended
}

func (p *probe) handle(ctx *router.Context, _ Count) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		defer p.deferred.Add(1)
		for n := 0; ; n++ {
			if p.step != nil {
				select {
				case <-p.step:
				case <-ctx.Done(): // one more yield shows that it returns false
				}
			}
			p.yields.Add(1)
			if !yield(n, nil) {
				return
			}
			p.sent.Add(1)
		}
	}
}

// TestStream_AbortAtEveryItemStopsProducer aborts when exactly n items were sent.
func TestStream_AbortAtEveryItemStopsProducer(t *testing.T) {
	for n := range 101 {
		runSynctest(t, fmt.Sprint(n), func(t *testing.T) {
			p := &probe{step: make(chan struct{})}
			s, _ := newStreamRouter(router.Options{}, p.handle)
			conn := routertest.Dial(t, s)
			stream := routertest.Start(conn, Count{})
			for i := range n {
				p.step <- struct{}{}
				assert.Equal(t, i, routertest.NextItem[int](stream))
			}
			synctest.Wait() // the iterator has started
			stream.Abort()
			assert.Equal(t, errors.Canceled, routertest.ReceiveAnswerError(stream).Code)
			synctest.Wait()
			assert.EqualValues(t, n, p.sent.Load())
			assert.EqualValues(t, n+1, p.yields.Load())
			assert.EqualValues(t, 1, p.deferred.Load())
			assert.Zero(t, conn.Pending(), "nothing follows the answer")
			stream.Abort() // it has ended
			assert.ElementsMatch(t, []string{"started", "completed CANCELLED", "handled", "finished"}, s.events.all())
			assert.Empty(t, s.failures.all())
		})
	}
}

// TestStream_AbortStopsBusyProducer aborts a producer that never waits for anything else.
func TestStream_AbortStopsBusyProducer(t *testing.T) {
	t.Parallel()
	p := &probe{}
	s, _ := newStreamRouter(router.Options{}, p.handle)
	server := httptest.NewServer(s)
	defer server.Close()
	ws := dialServer(t, server)
	rounds := testscale.Tiers(3, 5, 10)
	for n := range rounds {
		write(t, ws, websocket.MessageText, fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"%d"},"payload":{"to":0}}`, n))
		item := func(n int) string { return fmt.Sprintf(`"data":%d,`, n) }
		items := 0
		for ; items <= n; items++ {
			require.Contains(t, read(t, ws), item(items))
		}
		write(t, ws, websocket.MessageText, fmt.Sprintf(`{"type":"$ws:abort","meta":{"correlationId":"%d"}}`, n))
		text := read(t, ws)
		for ; !strings.Contains(text, `"CANCELLED"`); text = read(t, ws) {
			require.Contains(t, text, item(items))
			items++
		}
		require.Eventually(t, func() bool { return p.deferred.Load() == int64(n+1) }, time.Minute, time.Millisecond)
	}
	assert.EqualValues(t, rounds, p.yields.Load()-p.sent.Load(), "each producer has called yield once after the abort")
	assert.Empty(t, s.failures.all())
}

// waitingStreams are the places in which a producer can wait.
func waitingStreams() map[string]func(t *testing.T, r *router.Router) (*routertest.Conn, *routertest.Pending) {
	return map[string]func(t *testing.T, r *router.Router) (*routertest.Conn, *routertest.Pending){
		"in a send": func(t *testing.T, r *router.Router) (*routertest.Conn, *routertest.Pending) {
			client, _ := dialPaused(t, r)
			return client, routertest.Start(client, Count{})
		},
		"for a credit": func(t *testing.T, r *router.Router) (*routertest.Conn, *routertest.Pending) {
			client := routertest.Dial(t, r)
			return client, routertest.Start(client, Count{}, routertest.Credit(3))
		},
	}
}

func TestStream_WaitingProducerIsWoken(t *testing.T) {
	for where, start := range waitingStreams() {
		for name, tt := range map[string]struct {
			end    func(*router.Router, *routertest.Conn, *routertest.Pending)
			want   errors.Code // "" if the client cannot receive the answer
			event  errors.Code
			closed bool
		}{
			"abort": {
				end:  func(_ *router.Router, c *routertest.Conn, p *routertest.Pending) { c.Resume(); p.Abort() },
				want: errors.Canceled, event: errors.Canceled,
			},
			"deadline": {
				end:  func(*router.Router, *routertest.Conn, *routertest.Pending) { time.Sleep(time.Hour) },
				want: errors.DeadlineExceeded, event: errors.DeadlineExceeded,
			},
			"close by the client": {
				end:   func(_ *router.Router, c *routertest.Conn, _ *routertest.Pending) { c.Abort() },
				event: errors.Canceled, closed: true,
			},
			"close by the server": {
				end: func(r *router.Router, _ *routertest.Conn, _ *routertest.Pending) {
					for c := range r.Conns() {
						c.Close(4000, "")
					}
				},
				event: errors.Canceled, closed: true,
			},
			"shutdown": {
				end: func(r *router.Router, _ *routertest.Conn, _ *routertest.Pending) {
					go func() { _ = r.Shutdown(context.Background()) }()
				},
				want: errors.Unavailable, event: errors.Unavailable, closed: true,
			},
		} {
			runSynctest(t, name+" "+where, func(t *testing.T) {
				p := &probe{}
				s, route := newStreamRouter(router.Options{Limits: router.Limits{QueueMessages: 8}, Timeouts: patient}, p.handle)
				route.Timeout(time.Hour)
				router.On(s, func(*router.Context, Nothing) error { return nil })
				client, stream := start(t, s.Router)
				synctest.Wait()
				sent := p.sent.Load()
				assert.Positive(t, sent)
				assert.LessOrEqual(t, sent, int64(5))
				assert.Zero(t, p.deferred.Load())
				tt.end(s.Router, client, stream)
				if name != "abort" || where != "in a send" { // in this case, more items are sent before the abort: a server does not read while its send queue is high
					synctest.Wait()
					assert.Equal(t, sent, p.sent.Load(), "the producer is stopped although the client reads nothing")
				}
				client.Resume()
				synctest.Wait()
				assert.EqualValues(t, 1, p.deferred.Load())
				assert.Equal(t, p.sent.Load()+1, p.yields.Load())
				if tt.want != "" {
					assert.Equal(t, tt.want, routertest.ReceiveAnswerError(stream).Code)
				}
				if tt.want == errors.Unavailable {
					assert.EqualValues(t, 1012, client.Closed().Code)
				}
				if !tt.closed {
					client.Close()
				}
				synctest.Wait()
				assert.ElementsMatch(t, []string{"started", "handled", "completed " + string(tt.event), "finished"}, s.events.all())
				assert.Empty(t, s.failures.all())
			})
		}
	}
}

// TestShutdown_EndsStreamsAndWaitsForCalls has an open stream, one behind a slow event, and a call.
func TestShutdown_EndsStreamsAndWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{}
		s, _ := newStreamRouter(router.Options{}, p.handle)
		router.RPC(s, func(_ *router.Context, m Echo) (Echoed, error) {
			time.Sleep(5 * time.Second)
			return Echoed(m), nil
		})
		router.On(s, func(*router.Context, Nothing) error { time.Sleep(time.Second); return nil })
		conn := routertest.Dial(t, s)
		open := routertest.Start(conn, Count{}, routertest.Credit(1))
		call := routertest.Start(conn, Echo{5})
		conn.Send(Nothing{})
		behind := routertest.Start(conn, Count{})
		synctest.Wait()
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		for _, stream := range []*routertest.Pending{open, behind} {
			end := routertest.ReceiveAnswerError(stream)
			assert.Equal(t, errors.Unavailable, end.Code)
			assert.Equal(t, "server is restarting", end.Message)
		}
		assert.Less(t, time.Since(start), time.Second)
		assert.Equal(t, Echoed{5}, routertest.ReceiveAnswer[Echoed](call))
		assert.EqualValues(t, 1012, conn.Closed().Code)
		require.NoError(t, <-done)
		assert.EqualValues(t, 1, p.deferred.Load(), "the stream behind the event has not started")
	})
}

// TestStream_IteratorThatReturnsWhenContextEndsIsNotComplete lets the iterator return without another
// yield. The end of a stream would claim that all items were sent.
func TestStream_IteratorThatReturnsWhenContextEndsIsNotComplete(t *testing.T) {
	for range 20 { // the iterator may return before or after the router answers
		synctest.Test(t, func(t *testing.T) {
			s, route := newStreamRouter(router.Options{}, func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
				return func(func(int, error) bool) { <-ctx.Done() }
			})
			route.Timeout(time.Minute)
			conn := routertest.Dial(t, s)
			assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveAnswerError(routertest.Start(conn, Count{}, routertest.Timeout(5*time.Second))).Code)
			routertest.Start(conn, Count{})
			synctest.Wait()
			conn.Close()
			synctest.Wait()
			assert.Subset(t, s.events.all(), []string{"completed DEADLINE_EXCEEDED", "completed CANCELLED"})
			assert.Empty(t, s.failures.all())
		})
	}
}
