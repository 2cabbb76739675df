package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// callTimeout is Timeouts.Call of the routers in this file.
const callTimeout = 5 * time.Second

// A slowRouter has an event that blocks until proceed is closed, and a call.
type slowRouter struct {
	*router.Router
	proceed  chan struct{}
	charged  atomic.Int64 // messages that have passed ingress
	handled  atomic.Int64 // calls whose handler has started
	inFlight atomic.Int64 // Started without Finished
	answers  recorder[errors.Code]
}

func newSlowRouter(opts router.Options) *slowRouter {
	opts.Timeouts = patient
	opts.Timeouts.Call = callTimeout
	s := &slowRouter{Router: router.New(discardLogs(opts)), proceed: make(chan struct{})}
	s.UseIngress(func(context.Context, router.IngressContext) error { s.charged.Add(1); return nil })
	s.Observe(func(e observe.Event) {
		switch {
		case e.Kind == observe.Started:
			s.inFlight.Add(1)
		case e.Kind == observe.Finished:
			s.inFlight.Add(-1)
		case e.Kind == observe.Completed && e.Type == "ECHO":
			s.answers.add(e.Code)
		}
	})
	router.On(s, func(*router.Context, Blob) error { <-s.proceed; return nil })
	router.RPC(s, func(_ *router.Context, m Echo) (Echoed, error) { s.handled.Add(1); return Echoed(m), nil })
	return s
}

const slowEvent = `{"type":"BLOB","payload":{"n":1,"text":""}}`

func callText(id, text string) string {
	return fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":%q},"payload":{"n":1,"text":%q}}`, id, text)
}

// expired receives an answer and checks that it is DEADLINE_EXCEEDED.
func expired(t *testing.T, client *routertest.Conn, id string) {
	t.Helper()
	frame := client.Next()
	assert.Equal(t, "RPC_ERROR", frame.Type)
	assert.Equal(t, id, frame.Meta.CorrelationID)
	assert.Contains(t, frame.Text, `"code":"DEADLINE_EXCEEDED"`)
}

func TestCall_WaitingCallIsAnsweredAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{Concurrency: 3}})
		client := routertest.Dial(t, s)
		client.SendText(slowEvent)
		synctest.Wait()
		start := time.Now()
		for n := range 3 {
			client.SendText(callText(fmt.Sprint(n), ""))
			time.Sleep(time.Second)
		}
		client.SendText(callText("too many", ""))
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(client).Code)
		for n := range 3 {
			expired(t, client, fmt.Sprint(n))
			assert.Equal(t, callTimeout+time.Duration(n)*time.Second, time.Since(start))
		}
		synctest.Wait()
		assert.Zero(t, s.inFlight.Load())
		for range 2 { // the permits are free again, and so is the timer
			start = time.Now()
			for n := range 3 {
				client.SendText(callText(fmt.Sprint(n), ""))
				synctest.Wait()
			}
			for range 3 { // in any order
				assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveError(client).Code)
			}
			assert.Equal(t, callTimeout, time.Since(start))
		}
		synctest.Wait()
		assert.EqualValues(t, 1+4+6, s.charged.Load(), "every message is charged once")
		close(s.proceed)
		time.Sleep(time.Minute)
		assert.Zero(t, client.Pending(), "no second answer")
		assert.Zero(t, s.handled.Load(), "no handler has started")
		assert.Len(t, s.answers.all(), 10)
		assert.Equal(t, Echoed{5}, routertest.Call[Echoed](client, Echo{5}))
		assert.Zero(t, s.inFlight.Load())
	})
}

// TestCall_WaitingForFullQueueIsAnsweredAtDeadline sends calls behind more events than may wait, so
// that the connection is not read.
func TestCall_WaitingForFullQueueIsAnsweredAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		client := routertest.Dial(t, s)
		for range 65 {
			client.SendText(slowEvent)
		}
		synctest.Wait()
		start := time.Now()
		client.SendText(callText("a", ""))
		expired(t, client, "a")
		assert.Equal(t, callTimeout, time.Since(start))
		client.SendText(callText("b", ""))
		expired(t, client, "b")
		assert.Equal(t, 2*callTimeout, time.Since(start))
		close(s.proceed)
		synctest.Wait()
		assert.Zero(t, s.handled.Load())
		assert.Zero(t, s.inFlight.Load())
		assert.Equal(t, Echoed{5}, routertest.Call[Echoed](client, Echo{5}))
	})
}

// TestCall_ExpiredCallFreesInboundBytes lets expired calls make room for messages that were not read.
func TestCall_ExpiredCallFreesInboundBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{InboundBytes: 10_000}})
		client := routertest.Dial(t, s)
		client.SendText(slowEvent)
		synctest.Wait()
		start := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for n := range 30 {
				client.SendText(callText(fmt.Sprint(n), strings.Repeat("x", 4000)))
			}
		}()
		answers := 0
		for answers < 30 {
			assert.Contains(t, client.Next().Text, "DEADLINE_EXCEEDED")
			answers++
		}
		<-sent
		assert.Less(t, time.Since(start), 30*callTimeout)
		synctest.Wait()
		assert.Zero(t, s.inFlight.Load())
		assert.Zero(t, s.handled.Load())
		close(s.proceed)
	})
}

// TestCall_DeadlineAndStartAtTheSameTime lets the event end when the deadline of the call behind it
// passes. Each call starts or expires, and has one answer.
func TestCall_DeadlineAndStartAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns, calls = 50, 10
		s := newSlowRouter(router.Options{})
		var clients []*routertest.Conn
		for range conns {
			client := routertest.Dial(t, s)
			client.SendText(slowEvent)
			clients = append(clients, client)
		}
		synctest.Wait()
		start := time.Now()
		for _, client := range clients {
			for n := range calls {
				client.SendText(callText(fmt.Sprint(n), ""))
			}
		}
		require.Equal(t, start, time.Now())
		time.Sleep(callTimeout)
		close(s.proceed)
		synctest.Wait()
		replies, total := 0, 0
		for _, client := range clients {
			answered := map[string]bool{}
			for client.Pending() > 0 {
				frame := client.Next()
				require.False(t, answered[frame.Meta.CorrelationID], "a second answer")
				answered[frame.Meta.CorrelationID] = true
				total++
				if frame.Type == "ECHOED" {
					replies++
				}
			}
			require.Len(t, answered, calls)
		}
		assert.Equal(t, conns*calls, total)
		assert.EqualValues(t, replies, s.handled.Load(), "a handler runs exactly if its reply is the answer")
		assert.Zero(t, s.inFlight.Load())
		assert.Len(t, s.answers.all(), conns*calls)
	})
}

// TestCall_DeadlineRacesWithStart is the same over sockets, with events that end about when the
// deadlines pass.
func TestCall_DeadlineRacesWithStart(t *testing.T) {
	const conns, calls, limit = 20, 30, 30 * time.Millisecond
	var handled, inFlight atomic.Int64
	r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Call: limit}}))
	r.Observe(func(e observe.Event) {
		switch e.Kind {
		case observe.Started:
			inFlight.Add(1)
		case observe.Finished:
			inFlight.Add(-1)
		}
	})
	router.On(r, func(_ *router.Context, m Blob) error {
		time.Sleep(limit + time.Duration(m.N-10)*100*time.Microsecond)
		return nil
	})
	router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { handled.Add(1); return Echoed(m), nil })
	server := httptest.NewServer(r)
	defer server.Close()
	var replies atomic.Int64
	done := make(chan error, conns)
	for n := range conns {
		ws := dialServer(t, server)
		go func() { done <- raceOnce(t.Context(), ws, n, calls, &replies) }()
	}
	for range conns {
		require.NoError(t, <-done)
	}
	assert.LessOrEqual(t, replies.Load(), handled.Load(), "a handler that has started may miss the deadline")
	assert.Eventually(t, func() bool { return inFlight.Load() == 0 }, time.Minute, time.Millisecond)
}

// raceOnce sends an event that blocks, and calls, and receives exactly one answer for each call.
func raceOnce(ctx context.Context, ws *websocket.Conn, n, calls int, replies *atomic.Int64) error {
	texts := []string{fmt.Sprintf(`{"type":"BLOB","payload":{"n":%d,"text":""}}`, n)}
	for i := range calls {
		texts = append(texts, callText(fmt.Sprint(i), ""))
	}
	for _, text := range texts {
		if err := ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			return err
		}
	}
	answered := map[string]bool{}
	for len(answered) < calls {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		id := string(text[strings.Index(string(text), "correlationId"):])
		id, _, _ = strings.Cut(id, "}")
		if answered[id] {
			return errors.New("a second answer to " + id)
		}
		answered[id] = true
		if strings.Contains(string(text), "ECHOED") {
			replies.Add(1)
		}
	}
	return nil
}

func TestCall_WaitingCallIsAnsweredOverSocket(t *testing.T) {
	proceed := make(chan struct{})
	r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Call: 50 * time.Millisecond}}))
	var handled atomic.Int64
	router.On(r, func(*router.Context, Blob) error { <-proceed; return nil })
	router.RPC(r, func(_ *router.Context, m Echo) (Echoed, error) { handled.Add(1); return Echoed(m), nil })
	server := httptest.NewServer(r)
	defer server.Close()
	ws := dialServer(t, server)
	for _, text := range []string{slowEvent, callText("late", "")} {
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(text)))
	}
	_, text, err := ws.Read(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"correlationId":"late"`)
	assert.Contains(t, string(text), `"code":"DEADLINE_EXCEEDED"`)
	close(proceed)
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(callText("next", ""))))
	_, text, err = ws.Read(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"correlationId":"next"`)
	assert.EqualValues(t, 1, handled.Load())
}

// TestCall_RandomDeadlinesAreMet sends calls with random timeouts on two connections. Each call is
// answered once: at its deadline, unless its handler has returned before.
func TestCall_RandomDeadlinesAreMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		rng := rand.New(rand.NewPCG(3, 4))
		r := router.New(discardLogs(router.Options{Timeouts: patient, Limits: router.Limits{Concurrency: calls}}))
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			select {
			case <-time.After(time.Duration(m.N) * time.Millisecond):
			case <-ctx.Done():
				time.Sleep(time.Millisecond) // a reply at the same time could be first
			}
			return Echoed(m), nil
		}).Timeout(time.Hour)
		clients := []*routertest.Conn{routertest.Dial(t, r), routertest.Dial(t, r)}
		type answer struct {
			typ string
			at  int64 // in milliseconds since 1970
		}
		wants := map[string]answer{}
		for n := range calls {
			// A handler never returns exactly at the deadline.
			id, timeout, handling := strconv.Itoa(n), 1+2*rng.IntN(2000), 2*rng.IntN(2000)
			clients[n%2].SendText(fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":%q,"timeoutMs":%d},"payload":{"n":%d,"text":""}}`, id, timeout, handling))
			if timeout < handling {
				wants[id] = answer{"RPC_ERROR", time.Now().UnixMilli() + int64(timeout)}
			} else {
				wants[id] = answer{"ECHOED", time.Now().UnixMilli() + int64(handling)}
			}
			synctest.Wait()
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, client := range clients {
			for client.Pending() > 0 {
				frame := client.Next()
				id := frame.Meta.CorrelationID
				require.Contains(t, wants, id, "an answer to each call, and no second one")
				assert.Equal(t, wants[id], answer{frame.Type, frame.Meta.Timestamp}, "call %s", id)
				delete(wants, id)
			}
		}
		assert.Empty(t, wants, "calls without an answer")
	})
}
