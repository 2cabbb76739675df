package router_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
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
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Blob is a message of any size.
type Blob struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (Blob) MessageType() string { return "BLOB" }

type Blobbed struct {
	Text string `json:"text"`
}

func (Blobbed) MessageType() string { return "BLOBBED" }

// readBytes returns a counter of the bytes that the router reads from sockets.
func readBytes(r *router.Router) *atomic.Int64 {
	var read atomic.Int64
	r.Observe(func(e observe.Event) {
		if e.Kind == observe.Read {
			read.Add(int64(e.Bytes))
		}
	})
	return &read
}

// flood writes events until the server stops reading, and then the rest of the last one on a
// goroutine that ends with the connection. It returns the number of events.
func flood(t *testing.T, conn net.Conn, size int) int {
	for n := 0; ; n++ {
		text := fmt.Sprintf(`{"type":"BLOB","payload":{"n":%d,"text":%q}}`, n, strings.Repeat("x", size))
		frame := clientFrame(text)
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
		written, err := conn.Write(frame)
		if err == nil {
			continue
		}
		go func() {
			_ = conn.SetWriteDeadline(time.Time{})
			_, _ = conn.Write(frame[written:])
		}()
		return n + 1
	}
}

func clientFrame(text string) []byte {
	b := []byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}
	return append(b, text...)
}

func dialTCP(t testing.TB, server *httptest.Server) net.Conn {
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, handshakeWith(""))
	require.NoError(t, err)
	return conn
}

func TestLimits_InboundBytesPauseReading(t *testing.T) {
	t.Parallel()
	const size, limit, buffer = 4000, 20_000, 16 << 10
	const message = size + 100
	for name, tt := range map[string]struct {
		limits  router.Limits
		conns   int
		maxRead int64 // bytes: the limit, one message waiting for the limit, one being handled, one partly read, and a buffer
	}{
		"per connection": {router.Limits{}, 1, 1<<20 + 3*message + buffer},
		"per router":     {router.Limits{InboundBytes: limit}, 3, limit + 3*(3*message+buffer)},
	} {
		t.Run(name, func(t *testing.T) {
			var handled atomic.Int64
			proceed := make(chan struct{})
			r := router.New(discardLogs(router.Options{Limits: tt.limits}))
			router.On(r, func(*router.Context, Blob) error {
				<-proceed
				handled.Add(1)
				return nil
			})
			read := readBytes(r)
			server := httptest.NewServer(r)
			defer server.Close()
			sent := 0
			for range tt.conns {
				sent += flood(t, dialTCP(t, server), size)
			}
			assert.LessOrEqual(t, read.Load(), tt.maxRead)
			close(proceed)
			require.Eventually(t, func() bool { return handled.Load() == int64(sent) }, time.Minute, time.Millisecond)
			assert.Equal(t, tt.conns, r.Stats().Conns, "no connection was closed")
		})
	}
}

// TestLimits_InboundBytesServesOtherConnections lets one connection exceed the total limit.
func TestLimits_InboundBytesServesOtherConnections(t *testing.T) {
	proceed := make(chan struct{})
	r := router.New(discardLogs(router.Options{Limits: router.Limits{InboundBytes: 20_000}}))
	router.On(r, func(*router.Context, Blob) error { <-proceed; return nil })
	router.RPC(r, echo)
	server := httptest.NewServer(r)
	defer server.Close()
	flood(t, dialTCP(t, server), 4000)
	otherConn := routertest.Dial(t, r)
	for n := range 100 {
		assert.Equal(t, n, routertest.Call[Echoed](otherConn, Echo{N: n}).N)
	}
	close(proceed)
}

// TestBackpressure_SlowReaderStaysConnected pipelines messages whose answers exceed every queue,
// and starts to read only when the server has stopped reading.
func TestBackpressure_SlowReaderStaysConnected(t *testing.T) {
	answer := Blobbed{Text: strings.Repeat("y", 10_000)}
	for name, tt := range map[string]struct {
		limits router.Limits
		on     func(*router.Router)
	}{
		"calls": {router.Limits{QueueBytes: 64 << 10, Concurrency: 16}, func(r *router.Router) {
			router.RPC(r, func(*router.Context, Blob) (Blobbed, error) { return answer, nil })
		}},
		"events with an answer": {router.Limits{QueueBytes: 2 << 20}, func(r *router.Router) {
			router.On(r, func(ctx *router.Context, _ Blob) error { return ctx.Send(answer) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Limits: tt.limits}))
			tt.on(r)
			server := httptest.NewServer(r)
			defer server.Close()
			ws := dialServer(t, server)
			const messages = 2000
			paused := pipeline(t, ws, messages)
			<-paused
			for range messages {
				_, _, err := ws.Read(t.Context())
				require.NoError(t, err)
			}
		})
	}
}

// pipeline writes messages on a goroutine. The channel is closed when all are written, or when
// a write has blocked for 200 milliseconds.
func pipeline(t *testing.T, ws *websocket.Conn, messages int) <-chan struct{} {
	progress, paused := make(chan struct{}, messages), make(chan struct{})
	go func() {
		defer close(progress)
		for n := range messages {
			text := fmt.Sprintf(`{"type":"BLOB","meta":{"correlationId":"%d"},"payload":{"n":1,"text":""}}`, n)
			if ws.Write(t.Context(), websocket.MessageText, []byte(text)) != nil {
				return
			}
			progress <- struct{}{}
		}
	}()
	go func() {
		defer close(paused)
		for {
			select {
			case _, more := <-progress:
				if !more {
					return
				}
			case <-time.After(200 * time.Millisecond):
				return
			}
		}
	}()
	return paused
}

func TestSubscribe_RejectsInvalidNamesAndExcessTopics(t *testing.T) {
	r := router.New(discardLogs(router.Options{Limits: router.Limits{Topics: 2}}))
	var conn *router.Conn
	router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) { conn = ctx.Conn(); return Echoed(m), nil })
	routertest.Call[Echoed](routertest.Dial(t, r), Echo{})
	for topic, want := range map[string]string{
		"":                       "a topic's name must have 1 to 256 bytes, not 0",
		strings.Repeat("x", 257): "a topic's name must have 1 to 256 bytes, not 257",
		"a\nb":                   `a topic's name must be UTF-8 without control characters, unlike "a\nb"`,
		"\xff":                   `a topic's name must be UTF-8 without control characters, unlike "\xff"`,
	} {
		for _, err := range []error{conn.Subscribe(topic), conn.Subscribe(topic, router.Present("")), r.Publish(topic, Blob{})} {
			require.ErrorContains(t, err, want)
			assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
		}
		assert.False(t, conn.Subscribed(topic))
	}
	require.NoError(t, conn.Subscribe(strings.Repeat("é", 128)))
	require.NoError(t, conn.Subscribe("b", router.Present("")))
	require.NoError(t, conn.Subscribe("b"))
	for _, err := range []error{conn.Subscribe("c"), conn.Subscribe("c", router.Present(""))} {
		exceeded, ok := errors.AsType[*router.LimitExceeded](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, router.LimitExceeded{Kind: router.LimitTopics, Observed: 3, Limit: 2, RetryAfter: errors.Never}, *exceeded)
	}
	conn.Unsubscribe("b")
	require.NoError(t, conn.Subscribe("c"))
}

// A Quote replaces earlier quotes of the same symbol.
type Quote struct {
	Symbol string `json:"symbol"`
	N      int    `json:"n"`
	Pad    string `json:"pad,omitempty"`
}

func (Quote) MessageType() string { return "QUOTE" }

func (q Quote) ConflationKey() string { return q.Symbol }

// onlyConn returns the router's connection.
func onlyConn(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	conns := collect(r)
	require.Len(t, conns, 1)
	return conns[0]
}

// TestSlowConsumer_PausedClientEndsOnNewestMessage publishes much more than the sockets of a client
// that does not read can hold.
func TestSlowConsumer_PausedClientEndsOnNewestMessage(t *testing.T) {
	const size = 10_000
	messages := testscale.Tiers(1000, 2000, 5000) // a socket of Linux holds up to 10 MB
	for _, policy := range []router.SlowConsumerPolicy{router.DropOldest, router.Conflate} {
		for _, queue := range []int{8, 16, 64} {
			t.Run(fmt.Sprintf("policy %d, queue of %d", policy, queue), func(t *testing.T) {
				r := router.New(discardLogs(router.Options{
					SlowConsumer: policy, Limits: router.Limits{QueueMessages: queue}, Timeouts: router.Timeouts{Message: time.Minute},
				}))
				server := httptest.NewServer(r)
				defer server.Close()
				ws := dialServer(t, server)
				ws.SetReadLimit(-1)
				require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
				conn := onlyConn(t, r)
				require.NoError(t, conn.Subscribe("quotes"))
				pad := strings.Repeat("x", size)
				for n := range messages {
					require.NoError(t, r.Publish("quotes", Quote{fmt.Sprint(n % 4), n, pad}))
				}
				require.NoError(t, conn.Context().Err(), "the connection stays open")
				want := map[string]int{"0": messages - 4, "1": messages - 3, "2": messages - 2, "3": messages - 1}
				last := map[string]int{}
				for received := 0; !maps.Equal(last, want); received++ {
					_, text, err := ws.Read(t.Context())
					require.NoError(t, err, "after %d messages, with the state %v", received, last)
					var m struct{ Payload Quote }
					require.NoError(t, json.NewDecoder(bytes.NewReader(text)).Decode(&m))
					last[m.Payload.Symbol] = m.Payload.N
				}
			})
		}
	}
}

// TestConflate_ReplacesBeforeQueueIsFull sends 900 updates of 10 keys to a queue of 1,024.
func TestConflate_ReplacesBeforeQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflated := 0
		r := router.New(&router.Options{SlowConsumer: router.Conflate, Timeouts: router.Timeouts{Message: time.Hour, Ping: time.Hour}})
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.Conflated {
				conflated += e.Count
			}
		})
		slow := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		slow.Pause()
		for range 2 { // the first one is received, the second one is being written
			require.NoError(t, conn.Send(Say{"go", "first"}))
			synctest.Wait()
		}
		for n := range 900 {
			require.NoError(t, conn.Send(Quote{Symbol: fmt.Sprint(n % 10), N: n}))
		}
		assert.Equal(t, 890, conflated)
		slow.Resume()
		for range 2 {
			routertest.Receive[Say](slow)
		}
		for n := 890; n < 900; n++ {
			assert.Equal(t, Quote{Symbol: fmt.Sprint(n % 10), N: n}, routertest.Receive[Quote](slow))
		}
		synctest.Wait()
		assert.Zero(t, slow.Pending())
	})
}

// TestConflate_OvertakesOnlyConflatableMessages sends a message without a key between two with one.
func TestConflate_OvertakesOnlyConflatableMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{SlowConsumer: router.Conflate, Timeouts: router.Timeouts{Message: time.Hour, Ping: time.Hour}})
		slow := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		slow.Pause()
		for range 2 {
			require.NoError(t, conn.Send(Say{"go", "first"}))
			synctest.Wait()
		}
		for _, m := range []router.Message{
			Quote{Symbol: "a", N: 1},
			Quote{Symbol: "b", N: 1},
			Say{"go", "halt"},
			Quote{Symbol: "c", N: 1},
			Quote{Symbol: "a", N: 2},
			Quote{Symbol: "c", N: 2},
		} {
			require.NoError(t, conn.Send(m))
		}
		slow.Resume()
		for range 2 {
			routertest.Receive[Say](slow)
		}
		var got []string
		for range 4 {
			got = append(got, string(slow.Next().Payload))
		}
		assert.Equal(t, []string{`{"symbol":"b","n":1}`, `{"room":"go","text":"halt"}`, `{"symbol":"c","n":2}`, `{"symbol":"a","n":2}`}, got)
	})
}
