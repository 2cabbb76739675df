package router_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

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
