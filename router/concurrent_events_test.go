package router_test

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestConcurrent_EventsAreBounded sends more events than Limits.Concurrency. The next one starts
// whenever one of those that run has ended, in whatever way.
func TestConcurrent_EventsAreBounded(t *testing.T) {
	ends := map[string]func(){
		"by returning":      func() {},
		"with a panic":      func() { panic("expected") },
		"by runtime.Goexit": runtime.Goexit,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, messages = 3, 20
				var started atomic.Int64
				release := make(chan struct{})
				r := router.New(&router.Options{Limits: router.Limits{Concurrency: limit}, Logger: slog.New(slog.DiscardHandler)})
				router.On(r, func(*router.Context, Say) error {
					started.Add(1)
					<-release
					end()
					return nil
				}).Concurrent()
				router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), nil })
				conn := routertest.Dial(t, r)
				for range messages {
					conn.Send(Say{"a", "b"})
				}
				conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{}}`)
				for n := range int64(messages - limit) {
					synctest.Wait()
					assert.Equal(t, limit+n, started.Load())
					release <- struct{}{}
				}
				synctest.Wait()
				assert.EqualValues(t, messages, started.Load())
				for frame := conn.Next(); frame.Type != "ECHOED"; frame = conn.Next() {
					assert.Equal(t, "ERROR", frame.Type)
				}
				close(release)
			})
		})
	}
}

// TestConcurrent_EventsStayBoundedWithoutPauses counts the handlers that run at the same time.
func TestConcurrent_EventsStayBoundedWithoutPauses(t *testing.T) {
	const limit, messages = 3, 2000
	var running, most, handled atomic.Int64
	done := make(chan struct{})
	r := router.New(&router.Options{Limits: router.Limits{Concurrency: limit}})
	router.On(r, func(*router.Context, Say) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Microsecond)
		running.Add(-1)
		if handled.Add(1) == messages {
			close(done)
		}
		return nil
	}).Concurrent()
	conn := routertest.Dial(t, r)
	for range messages {
		conn.Send(Say{"a", "b"})
	}
	<-done
	assert.LessOrEqual(t, most.Load(), int64(limit))
}
