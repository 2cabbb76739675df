package router_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A probe is the handler of a stream without end. It counts what its iterator does.
type probe struct {
	yields   atomic.Int64 // calls of yield
	sent     atomic.Int64 // of these, those that returned true
	deferred atomic.Int64 // iterators that have ended
}

func (p *probe) handle(*router.Context, Count) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		defer p.deferred.Add(1)
		for n := 0; ; n++ {
			p.yields.Add(1)
			if !yield(n, nil) {
				return
			}
			p.sent.Add(1)
		}
	}
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
