package router_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// Slow takes one second to decode and the duration Time to encode.
type Slow struct{ Time slowJSON }

func (Slow) MessageType() string { return "SLOW" }

type slowJSON time.Duration

func (s *slowJSON) UnmarshalJSON([]byte) error { time.Sleep(time.Second); return nil }

func (s slowJSON) MarshalJSON() ([]byte, error) {
	time.Sleep(time.Duration(s))
	return []byte("1"), nil
}

func TestOrder_EventStartsAfterEarlierCallIsDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started recorder[string]
		r := router.New(nil)
		router.RPC(r, func(*router.Context, Slow) (Echoed, error) {
			started.add("call")
			time.Sleep(time.Second)
			return Echoed{}, nil
		})
		router.On(r, func(*router.Context, Say) error {
			time.Sleep(time.Millisecond) // both may start at the same time
			started.add("event")
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.SendText(`{"type":"SLOW","meta":{"correlationId":"c"},"payload":{"Time":1}}`)
		conn.Send(Say{"a", "b"})
		time.Sleep(1100 * time.Millisecond)
		assert.Equal(t, []string{"call", "event"}, started.all(), "the event starts before the call returns")
		time.Sleep(time.Minute)
	})
}

func TestProgress_NeverFollowsReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Timeouts: router.Timeouts{Call: time.Second}})
		router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
			assert.NoError(t, ctx.Progress(slowJSON(0)))
			return Echoed{}, ctx.Progress(slowJSON(2 * time.Second))
		})
		conn := routertest.Dial(t, r)
		assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(conn, Echo{}).Code)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, conn.Pending(), "only the first progress message")
	})
}

func TestOnLimitExceeded_PendingReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, hookTime = 500, 10 * time.Millisecond
		var reported atomic.Int64
		r := router.New(&router.Options{OnLimitExceeded: func(router.LimitExceeded) {
			time.Sleep(hookTime)
			reported.Add(1)
		}})
		router.On(r, func(*router.Context, Say) error {
			return &router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}
		}).Concurrent()
		conn := routertest.Dial(t, r)
		go func() {
			for range messages {
				conn.Send(Say{"a", "b"})
			}
		}()
		for range messages / 10 {
			time.Sleep(5 * hookTime)
			assert.LessOrEqual(t, int64(conn.Pending())-reported.Load(), int64(200), "64 pending reports, and the handlers that block on them")
		}
		time.Sleep(messages * hookTime)
		assert.Equal(t, messages, conn.Pending())
		assert.EqualValues(t, messages, reported.Load())
	})
}

func TestOnLimitExceeded_DoesNotDelayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		r := router.New(&router.Options{
			Limits:          router.Limits{Concurrency: 2 * calls},
			OnLimitExceeded: func(router.LimitExceeded) { time.Sleep(100 * time.Millisecond) },
		})
		router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
			time.Sleep(time.Millisecond) // until all calls have started
			return Echoed{}, &router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}
		})
		conn := routertest.Dial(t, r)
		for range calls {
			conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
		}
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, calls, conn.Pending())
		time.Sleep(time.Minute)
	})
}

func TestOnLimitExceeded_LateLimitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits recorder[router.LimitExceeded]
		r := router.New(&router.Options{
			Timeouts:        router.Timeouts{Call: time.Second},
			OnLimitExceeded: limits.add,
			OnError:         func(router.ErrorReport) { t.Error("OnError was called for a limit") },
		})
		router.RPC(r, func(*router.Context, Echo) (Echoed, error) {
			time.Sleep(2 * time.Second)
			return Echoed{}, &router.LimitExceeded{Kind: router.LimitRate, Observed: 2, Limit: 1}
		})
		assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(routertest.Dial(t, r), Echo{}).Code)
		time.Sleep(time.Minute)
		require.Len(t, limits.all(), 1)
		assert.Equal(t, "ECHO", limits.all()[0].Type)
	})
}

// TestSlowConsumer_OverflowDuringCloseEndsConnectionOnce prolongs the overflow with an observer that
// ends the connection and then sleeps.
func TestSlowConsumer_OverflowDuringCloseEndsConnectionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends recorder[router.CloseError]
		r := router.New(&router.Options{
			Limits:          router.Limits{QueueMessages: 4, ConnsPerIP: 1},
			SlowConsumer:    router.DropNewest,
			OnLimitExceeded: func(router.LimitExceeded) {},
			OnBackpressure:  func(*router.Conn, int, int) {},
			OnClose:         func(_ *router.Conn, end router.CloseError) { ends.add(end) },
		})
		var conn *routertest.Conn
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.Dropped {
				conn.Abort()
				time.Sleep(time.Second)
			}
		})
		conn = routertest.Dial(t, r)
		synctest.Wait()
		conn.Pause()
		for _, c := range collect(r) {
			for c.Send(Say{"a", strings.Repeat("x", 100_000)}) == nil {
			}
		}
		time.Sleep(time.Minute)
		assert.Len(t, ends.all(), 1)
		routertest.Dial(t, r)
		routertest.Refused(t, r)
	})
}

// TestPresence_RemoteJoinsWhileLastLocalMemberLeaves receives joins from other nodes while the last
// local member leaves the topic.
func TestPresence_RemoteJoinsWhileLastLocalMemberLeaves(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	const nodes = 8
	rounds := testscale.Tiers(100, 150, 1000)
	var present, joins atomic.Int64
	b := &recordingBroker{}
	r := router.New(&router.Options{Broker: b, OnPresence: func(e router.PresenceEvent) {
		switch {
		case !strings.HasPrefix(e.Member.ConnID, "remote"):
		case e.Joined:
			present.Add(1)
			joins.Add(1)
		default:
			present.Add(-1)
		}
	}})
	routertest.Dial(t, r)
	require.Eventually(t, func() bool { return len(collect(r)) == 1 }, time.Minute, time.Millisecond)
	c := collect(r)[0]
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			for !stop.Load() {
				b.PresenceChanged("room", broker.Member{Node: fmt.Sprint("node", i), ID: fmt.Sprint("remote", i), Data: "{}"}, true)
			}
		})
	}
	for n := 0; n < rounds || joins.Load() == 0 && n < 100*rounds; n++ {
		require.NoError(t, c.Subscribe("room", router.Present("")))
		runtime.Gosched()
		c.Unsubscribe("room")
	}
	stop.Store(true)
	wg.Wait()
	assert.Eventually(t, func() bool { return present.Load() == 0 }, time.Minute, time.Millisecond, "%d members never left", present.Load())
	assert.Positive(t, joins.Load())
}
