package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// patient are timeouts under which a client that reads nothing stays connected.
var patient = router.Timeouts{Message: 24 * time.Hour, Ping: 24 * time.Hour, Call: 24 * time.Hour}

// dialPaused returns a client that does not read, and its connection. One message is being written,
// so that further ones wait.
func dialPaused(t *testing.T, r *router.Router) (*routertest.Conn, *router.Conn) {
	t.Helper()
	client := routertest.Dial(t, r)
	synctest.Wait()
	conn := onlyConn(t, r)
	client.Pause()
	for range 2 { // the first one is received
		require.NoError(t, conn.Send(Nothing{}))
		synctest.Wait()
	}
	return client, conn
}

// resume lets a client of dialPaused read.
func resume(client *routertest.Conn) {
	client.Resume()
	for range 2 {
		routertest.Receive[Nothing](client)
	}
}

// TestTopicOptions_SlowConsumerOfTopic publishes on three topics with different policies, from this
// node and from another one.
func TestTopicOptions_SlowConsumerOfTopic(t *testing.T) {
	for _, remote := range []bool{false, true} {
		runSynctest(t, fmt.Sprintf("remote %t", remote), func(t *testing.T) {
			broker := memory.NewBroker()
			publisher := router.New(&router.Options{Broker: broker})
			r := router.New(discardLogs(router.Options{
				Broker: broker, Limits: router.Limits{QueueMessages: 8}, Timeouts: patient,
			}))
			router.Topic(r, "quotes/{symbol}", &router.TopicOptions{SlowConsumer: router.Conflate})
			router.Topic(r, "log/{name}", &router.TopicOptions{SlowConsumer: router.DropOldest})
			client, conn := dialPaused(t, r)
			for _, topic := range []string{"quotes/1", "log/1", "chat/1"} {
				require.NoError(t, conn.Subscribe(topic))
			}
			if !remote {
				publisher = r
			}
			publish := func(topic string, m router.Message) {
				require.NoError(t, publisher.Publish(topic, m))
				synctest.Wait()
			}
			for n := range 100 {
				publish("quotes/1", Quote{Symbol: fmt.Sprint(n % 2), N: n})
			}
			for n := range 100 {
				publish("log/1", Blob{N: n})
			}
			for range 4 {
				publish("chat/1", Say{"go", "on"})
			}
			require.NoError(t, conn.Context().Err(), "the connection stays open")
			resume(client)
			assert.Equal(t, 98, routertest.Receive[Quote](client).N)
			assert.Equal(t, 99, routertest.Receive[Quote](client).N)
			assert.Equal(t, 98, routertest.Receive[Blob](client).N)
			assert.Equal(t, 99, routertest.Receive[Blob](client).N)
			assert.Equal(t, []string{"on", "on", "on", "on"}, receiveTexts(client, 4))
			client.Pause()
			for range 11 {
				publish("chat/1", Say{"go", "too much"})
			}
			require.Error(t, conn.Send(Nothing{}), "the default policy closes the connection")
		})
	}
}

func TestSendWait_ServesProducersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 2}, Timeouts: patient}))
		client, conn := dialPaused(t, r)
		const producers = 50
		for n := range producers {
			go func() { assert.NoError(t, conn.SendWait(context.Background(), Quote{N: n})) }()
			synctest.Wait()
		}
		assert.Equal(t, 2, conn.QueueStats().Messages, "the others wait")
		resume(client)
		for n := range producers {
			assert.Equal(t, n, routertest.Receive[Quote](client).N)
		}
	})
}

// TestSendWait_IsNotDropped floods the queue after SendWait.
func TestSendWait_IsNotDropped(t *testing.T) {
	for _, policy := range []router.SlowConsumerPolicy{router.DropOldest, router.DropNewest, router.Conflate} {
		runSynctest(t, fmt.Sprintf("policy %d", policy), func(t *testing.T) {
			r := router.New(discardLogs(router.Options{SlowConsumer: policy, Limits: router.Limits{QueueMessages: 8}, Timeouts: patient}))
			client, conn := dialPaused(t, r)
			require.NoError(t, conn.SendWait(t.Context(), Quote{Symbol: "a", N: 1}))
			for n := range 100 {
				_ = conn.Send(Quote{Symbol: "a", N: n})
			}
			resume(client)
			assert.Equal(t, Quote{Symbol: "a", N: 1}, routertest.Receive[Quote](client))
		})
	}
}

func TestSendWait_EndsWithContextOrConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 2, QueueBytes: 1000}, Timeouts: patient}))
		_, conn := dialPaused(t, r)
		exceeded, ok := errors.AsType[*router.LimitExceeded](conn.SendWait(t.Context(), Say{"go", strings.Repeat("x", 1000)}))
		require.True(t, ok)
		assert.Equal(t, router.LimitQueue, exceeded.Kind)
		assert.EqualValues(t, 1000, exceeded.Limit)
		require.NoError(t, conn.SendWait(t.Context(), Quote{N: 0}))
		require.NoError(t, conn.SendWait(t.Context(), Quote{N: 1}))

		results := make([]error, 4)
		var group sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for n := range results { // those with an odd number wait for the connection
			ctx := ctx
			if n%2 == 1 {
				ctx = context.Background()
			}
			group.Go(func() { results[n] = conn.SendWait(ctx, Quote{N: 2 + n}) })
			synctest.Wait()
		}
		start := time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []error{context.DeadlineExceeded, nil, context.DeadlineExceeded, nil}, results)
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, 2, conn.QueueStats().Messages)
		conn.Close(router.StatusNormal, "")
		group.Wait()
		for _, n := range []int{1, 3} {
			assert.Equal(t, errors.Unavailable, errors.CodeOf(results[n]))
		}
		assert.Equal(t, errors.Unavailable, errors.CodeOf(conn.SendWait(t.Context(), Quote{})))
	})
}

// TestSendWait_FromHandlersDoesNotDeadlock calls SendWait from an event's and a call's handler and
// from a hook, for a client that sends more messages than it reads.
func TestSendWait_FromHandlersDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 1000
		r := router.New(discardLogs(router.Options{
			Limits: router.Limits{QueueMessages: 4}, Timeouts: patient,
			OnBackpressure: func(c *router.Conn, _, _ int) { _ = c.SendWait(context.Background(), Nothing{}) },
		}))
		proceed := make(chan struct{})
		sendAll := func(ctx *router.Context) error {
			<-proceed
			for n := range messages {
				if err := ctx.SendWait(Quote{N: n}); err != nil {
					return err
				}
			}
			return nil
		}
		router.On(r, func(ctx *router.Context, _ Blob) error { return sendAll(ctx) })
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) { return Echoed(m), sendAll(ctx) })
		client := routertest.Dial(t, r)
		client.Send(Echo{1})
		for range 3 {
			client.SendText(`{"type":"BLOB","payload":{"n":1,"text":""}}`)
		}
		client.Send(Echo{2})
		synctest.Wait()
		client.Pause()
		close(proceed)
		synctest.Wait()
		client.Resume()
		answers, quotes := 0, 0
		for quotes < 5*messages || answers < 2 {
			switch frame := client.Next(); frame.Type {
			case "QUOTE":
				quotes++
			case "ECHOED":
				answers++
			default:
				assert.Equal(t, "NOTHING", frame.Type)
			}
		}
	})
}
