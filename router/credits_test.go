package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// defaultSendTimeout is the default of Timeouts.Send.
const defaultSendTimeout = 10 * time.Minute

// slowReads are timeouts under which a client that reads nothing stays connected. Timeouts.Send has
// its default.
var slowReads = router.Timeouts{Message: 24 * time.Hour, Ping: 24 * time.Hour, Call: 24 * time.Hour}

// TestStream_EndsWhenClientTakesNothing waits in both places for exactly the timeout, and then opens
// another stream in the place of the first.
func TestStream_EndsWhenClientTakesNothing(t *testing.T) {
	for where, start := range waitingStreams() {
		runSynctest(t, where, func(t *testing.T) {
			p := &probe{}
			limits := router.Limits{QueueMessages: 8, Concurrency: 1}
			s, _ := newStreamRouter(router.Options{Limits: limits, Timeouts: slowReads}, p.handle)
			client, stream := start(t, s.Router)
			time.Sleep(defaultSendTimeout - time.Nanosecond)
			synctest.Wait()
			assert.Zero(t, p.deferred.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.EqualValues(t, 1, p.deferred.Load())
			assert.Equal(t, p.sent.Load()+1, p.yields.Load())
			client.Resume()
			assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveAnswerError(stream).Code)
			synctest.Wait()
			assert.ElementsMatch(t, []string{"started", "handled", "completed DEADLINE_EXCEEDED", "finished"}, s.events.all())
			assert.Empty(t, s.failures.all(), "the client is at fault, not the server")
			assert.Equal(t, 0, routertest.NextItem[int](routertest.Start(client, Count{}, routertest.Credit(1))))
		})
	}
}

// TestStream_LivesWhileClientTakesItems grants a credit just in time, for a day.
func TestStream_LivesWhileClientTakesItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, (&probe{}).handle)
		stream := routertest.Start(routertest.Dial(t, s), Count{}, routertest.Credit(1))
		for n := range 24 * 6 {
			assert.Equal(t, n, routertest.NextItem[int](stream))
			time.Sleep(defaultSendTimeout - time.Second)
			stream.Grant(1)
		}
	})
}

// TestConn_SendWaitEndsWhenClientTakesNothing fills the queue in the handler of an event, behind another
// producer that waits.
func TestConn_SendWaitEndsWhenClientTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: slowReads}))
		results := make(chan error, 2)
		router.On(r, func(ctx *router.Context, _ Blob) error {
			for {
				if err := ctx.SendWait(Nothing{}); err != nil {
					results <- err
					return nil
				}
			}
		}).Concurrent()
		client, conn := dialPaused(t, r)
		start := time.Now()
		client.Send(Blob{})
		client.Send(Blob{})
		for range 2 {
			err := <-results
			require.Error(t, err)
			assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(err))
			assert.Equal(t, defaultSendTimeout, time.Since(start))
		}
		client.Resume()
		synctest.Wait()
		require.NoError(t, conn.SendWait(t.Context(), Nothing{}), "the turn is free")
	})
}
