package router_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestClientCall_AbortForFullSendQueueIsDropped ends a call while the client reads nothing: it stays
// connected.
func TestClientCall_AbortForFullSendQueueIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: patient}))
		client, c := dialConn(t, r)
		c.Greet()
		client.Pause()
		ctx, cancel := context.WithCancel(t.Context())
		done := confirm(ctx, c)
		synctest.Wait()
		for c.QueueStats().Messages < 4 {
			require.NoError(t, c.Send(Say{"a", strings.Repeat("x", 100_000)}))
			synctest.Wait()
		}
		cancel()
		assert.Equal(t, context.Canceled, (<-done).err)
		client.Resume()
		synctest.Wait()
		assert.NoError(t, c.Context().Err())
		assert.Equal(t, "CONFIRM", client.Next().Type)
		for client.Pending() > 0 {
			assert.Equal(t, "SAY", client.Next().Type)
		}
	})
}

func TestClientCall_FromOnOpenNeedsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := make(chan outcome, 2)
		r := router.New(&router.Options{
			Timeouts: router.Timeouts{Call: callTimeout},
			OnOpen: func(ctx context.Context, c *router.Conn) error {
				outcomes <- <-confirm(ctx, c)
				go func() { outcomes <- <-confirm(ctx, c) }()
				return nil
			},
		})
		client := routertest.Dial(t, r)
		routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		got := <-outcomes
		assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(got.err))
		assert.Equal(t, callTimeout, got.after)
		got = <-outcomes
		require.NoError(t, got.err)
		assert.Equal(t, Confirmed{Yes: true}, got.reply)
	})
}
