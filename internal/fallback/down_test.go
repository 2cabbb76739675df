package fallback_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

// counted returns a handler, and the number of its calls that have not ended.
func counted(h http.Handler) (http.Handler, *atomic.Int32) {
	var open atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		h.ServeHTTP(w, req)
	}), &open
}

// TestDown_NewerOneEndsTheOlderWhileItIsWritten has a client that asks for the same event again and again, and reads no
// response: only one of them has a copy of the event.
func TestDown_NewerOneEndsTheOlderWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		h, open := counted(r.HTTPFallback(nil))
		client := newClient(t, h)
		client.open("poll").close()
		large := strings.Repeat("x", 1000<<10)
		require.NoError(t, onlyConn(t, r).Send(text{large}))
		for range 100 {
			defer client.events("stream").close()
			synctest.Wait()
			assert.EqualValues(t, 1, open.Load())
		}
		last := client.events("poll")
		defer last.close()
		assert.Contains(t, client.receive(last).data, large)
	})
}

// TestDown_WaitsForAnOlderOneThatCannotBeEnded has a response without deadlines, which a client does not read. Of those
// that wait for it, all but the newest one are refused.
func TestDown_WaitsForAnOlderOneThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		h, open := counted(r.HTTPFallback(nil))
		client := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.ServeHTTP(plainWriter{w}, req) }))
		client.open("poll").close()
		large := strings.Repeat("x", 1000<<10)
		require.NoError(t, onlyConn(t, r).Send(text{large}))
		first := client.events("poll")
		defer first.close()
		const others = 10
		responses := make(chan *http.Response)
		for range others {
			go func() { responses <- client.down("poll") }()
			synctest.Wait()
			assert.EqualValues(t, 2, open.Load())
		}
		for range others - 1 {
			resp := <-responses
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
		_, err := first.next()
		require.Equal(t, io.EOF, err, "it ends when the client reads a part of it")
		newest := readEvents(<-responses)
		defer newest.close()
		assert.Contains(t, client.receive(newest).data, large)
	})
}

// TestDown_FullWindowIsASlowConsumer has a client that reads a stream and acknowledges nothing: what the server keeps is
// bounded, Options.SlowConsumer acts on the rest, and the client is then lost.
func TestDown_FullWindowIsASlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := &recorder[int]{}
		r := router.New(&router.Options{
			SlowConsumer: router.DropNewest, Limits: router.Limits{QueueBytes: 64 << 10},
		})
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.Dropped {
				dropped.add(e.Count)
			}
		})
		client := newClient(t, r.HTTPFallback(nil))
		events := client.open("stream")
		defer events.close()
		conn := onlyConn(t, r)
		received := make(chan int)
		go func() {
			size := 0
			for {
				e, err := events.next()
				if err != nil || e.name == "close" {
					received <- size
					return
				}
				size += len(e.data)
			}
		}()
		start := time.Now()
		for range 100 {
			_ = conn.Send(text{strings.Repeat("x", 4<<10)})
			time.Sleep(time.Millisecond)
		}
		assert.NotEmpty(t, dropped.all())
		assert.InDelta(t, 64<<10, <-received, 5<<10)
		assert.InDelta(t, 10*time.Second, time.Since(start), float64(time.Second))
		synctest.Wait()
		assert.Empty(t, collect(r))
	})
}

// A text is a message of any size.
type text struct{ Text string }

func (text) MessageType() string { return "TEXT" }
