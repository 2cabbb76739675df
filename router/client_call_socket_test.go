package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// dialSocket opens a connection over a real socket and returns both sides.
func dialSocket(t *testing.T, opts *router.Options) (*websocket.Conn, *router.Conn) {
	t.Helper()
	r := router.New(opts)
	router.RPC(r, echo)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	ws, _, err := websocket.Dial(t.Context(), server.URL, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
	return ws, collect(r)[0]
}

// readFrame reads a message.
func readFrame(ctx context.Context, ws *websocket.Conn) (frame routertest.Frame, err error) {
	_, text, err := ws.Read(ctx)
	if err != nil {
		return frame, err
	}
	return frame, json.Unmarshal(text, &frame)
}

// TestClientCall_OverSocket has one call of each kind without an answer, with an error, with a
// reply, and one that the end of the connection ends.
func TestClientCall_OverSocket(t *testing.T) {
	ws, c := dialSocket(t, nil)
	respond := func(text string) { require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(text))) }

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	assert.Equal(t, context.DeadlineExceeded, (<-confirm(ctx, c)).err)
	late, err := readFrame(t.Context(), ws)
	require.NoError(t, err)

	done := confirm(t.Context(), c)
	call, err := readFrame(t.Context(), ws)
	require.NoError(t, err)
	respond(answer(late.Meta.CorrelationID, "CONFIRMED", `{"yes":true}`))
	respond(answer(call.Meta.CorrelationID, "RPC_ERROR", `{"code":"PERMISSION_DENIED","message":"the user said no"}`))
	assert.Equal(t, errors.Errorf(errors.PermissionDenied, "the user said no"), answered((<-done).err))

	done = confirm(t.Context(), c)
	call, err = readFrame(t.Context(), ws)
	require.NoError(t, err)
	require.NoError(t, ws.Write(t.Context(), websocket.MessageBinary, []byte(answer(call.Meta.CorrelationID, "CONFIRMED", `{"yes":true}`))))
	assert.Equal(t, Confirmed{Yes: true}, (<-done).reply)

	done = confirm(t.Context(), c)
	call, err = readFrame(t.Context(), ws)
	require.NoError(t, err)
	require.NoError(t, ws.Write(t.Context(), websocket.MessageBinary, []byte(answer(call.Meta.CorrelationID, "RPC_ERROR", "{\"code\":\"ABORTED\",\"x\":\"\xff\"}"))))
	assert.ErrorContains(t, (<-done).err, "message is not valid UTF-8")

	done = confirm(t.Context(), c)
	_, err = readFrame(t.Context(), ws)
	require.NoError(t, err)
	require.NoError(t, ws.CloseNow())
	got := <-done
	assert.Equal(t, errors.Unavailable, errors.CodeOf(got.err))
	assert.Less(t, got.after, 30*time.Second)
}

// TestClientCall_ManyGoroutinesOverSocket makes calls from several goroutines to a client that
// answers late, twice, with errors, or not at all, while it makes calls itself.
func TestClientCall_ManyGoroutinesOverSocket(t *testing.T) {
	const goroutines, calls = 16, 60
	ws, c := dialSocket(t, &router.Options{Limits: router.Limits{Concurrency: goroutines}, Timeouts: router.Timeouts{Call: 20 * time.Second}})
	ctx, cancel := context.WithCancel(context.Background())
	var client sync.WaitGroup
	var echoes atomic.Int64
	client.Go(func() {
		for {
			frame, err := readFrame(ctx, ws)
			if err != nil {
				return
			}
			id := frame.Meta.CorrelationID
			var m Confirm
			_ = json.Unmarshal(frame.Payload, &m)
			text := answer(id, "CONFIRMED", fmt.Sprintf(`{"yes":%t}`, len(m.Question)%2 == 0))
			switch {
			case frame.Type != "CONFIRM":
				echoes.Add(1)
				continue
			case len(m.Question)%5 == 0: // no answer
				continue
			case len(m.Question)%3 == 0:
				text = answer(id, "RPC_ERROR", `{"code":"ABORTED"}`)
			}
			for _, text := range []string{answer(id+"x", "CONFIRMED", `{}`), text, text, callText(id[1:], "")} {
				if ws.Write(ctx, websocket.MessageText, []byte(text)) != nil {
					return
				}
			}
		}
	})
	var callers sync.WaitGroup
	var replies, failed atomic.Int64
	for range goroutines {
		callers.Go(func() {
			for n := range calls {
				length := 1 + n%15
				ctx, cancel := context.WithTimeout(ctx, map[bool]time.Duration{true: time.Millisecond, false: 20 * time.Second}[length%5 == 0])
				reply, err := router.Call[Confirmed](ctx, c, Confirm{fmt.Sprintf("%0*d", length, 0)})
				cancel()
				switch {
				case length%5 == 0:
					assert.Equal(t, context.DeadlineExceeded, err)
				case length%3 == 0:
					assert.Equal(t, &errors.Error{Code: errors.Aborted}, answered(err))
					failed.Add(1)
				default:
					assert.NoError(t, err)
					assert.Equal(t, length%2 == 0, reply.Yes)
					replies.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.Eventually(t, func() bool { return echoes.Load() == replies.Load()+failed.Load() }, time.Minute, time.Millisecond)
	cancel()
	client.Wait()
	assert.EqualValues(t, goroutines*calls*8/15, replies.Load())
	assert.EqualValues(t, goroutines*calls*4/15, failed.Load())
}

// FuzzClientCall_Answer sends any text as the answer to a call. The call ends at most once, and the
// next call gets its own answer.
func FuzzClientCall_Answer(f *testing.F) {
	for _, seed := range []string{
		answer("$ws:1", "CONFIRMED", `{"yes":true}`), answer("$ws:1", "CONFIRMED", `{"yes":tru}`), answer("$ws:1", "CONFIRMED", `{"By":"panic"}`),
		answer("$ws:1", "RPC_ERROR", `{"code":"ABORTED","message":"m","details":{"a":{}},"retryAfterMs":null}`),
		answer("$ws:1", "RPC_ERROR", `{"code":"ABORTED","retryAfterMs":1e300}`), answer("$ws:1", "ERROR", `null`),
		answer("$ws:2", "CONFIRMED", `{}`), answer("$ws:", "CONFIRMED", `{}`), `{"meta":{"correlationId":"$ws:1"}}`,
		`{"payload":{"yes":true},"meta":{"correlationId":"\u0024ws:1"},"type":"CONFIRMED"}`, `{"type":"CONFIRMED","meta":{"correlationId":"$ws:1","ack":true}}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || len(text) > 10_000 {
			return
		}
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, echo)
		client, c := dialConn(t, r)
		done := confirm(t.Context(), c)
		call := client.Next()
		for range 2 {
			client.SendText(text)
		}
		client.Answer(call, Confirmed{By: "the test"})
		client.SendText(callText("own", "")) // after its answer, everything has been handled
		for client.Next().Meta.CorrelationID != "own" {
		}
		if got := <-done; got.err != nil {
			assert.Zero(t, got.reply)
		}
		done = confirm(t.Context(), c)
		for call = client.Next(); call.Type != "CONFIRM"; call = client.Next() {
		}
		client.Answer(call, Confirmed{Yes: true})
		assert.Equal(t, Confirmed{Yes: true}, (<-done).reply)
		assert.Empty(t, done)
	})
}
