package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestProgressWait_ReturnsWhyCallHasEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*routertest.Pending, *routertest.Conn)
		want errors.Code
	}{
		"abort":    {func(p *routertest.Pending, _ *routertest.Conn) { p.Abort() }, errors.Canceled},
		"deadline": {func(*routertest.Pending, *routertest.Conn) { time.Sleep(time.Minute) }, errors.DeadlineExceeded},
		"close":    {func(_ *routertest.Pending, c *routertest.Conn) { c.Close() }, errors.Unavailable},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Call: time.Minute}}))
			results := make(chan error, 2)
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				results <- ctx.ProgressWait(m.N)
				<-ctx.Done()
				err := ctx.ProgressWait(m.N)
				results <- err
				return Echoed{}, err
			})
			conn := routertest.Dial(t, r)
			call := routertest.Start(conn, Echo{3})
			assert.Equal(t, 3, routertest.NextItem[int](call))
			require.NoError(t, <-results)
			synctest.Wait()
			tt.end(call, conn)
			err := <-results
			require.Equal(t, tt.want, errors.CodeOf(err), "%v", err)
			if tt.want != errors.Unavailable {
				assert.Equal(t, tt.want, routertest.ReceiveAnswerError(call).Code)
			}
		})
	}
}

func TestProgress_DoesNothingAfterAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		var kept *router.Context
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) { kept = ctx; return Echoed(m), nil })
		router.On(r, func(ctx *router.Context, _ Nothing) error {
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(ctx.Progress(1)))
			assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(ctx.ProgressWait(1)))
			return nil
		})
		conn := routertest.Dial(t, r)
		conn.Send(Nothing{})
		routertest.Call[Echoed](conn, Echo{1})
		synctest.Wait()
		require.NoError(t, kept.Progress(1))
		require.ErrorIs(t, kept.ProgressWait(1), context.Canceled)
		synctest.Wait()
		assert.Zero(t, conn.Pending())
	})
}

// TestProgressWait_SlowReaderStaysConnected sends more progress than the queue of a paused client
// holds.
func TestProgressWait_SlowReaderStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const updates = 100
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 8}, Timeouts: patient}))
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			for n := range updates {
				if err := ctx.ProgressWait(n); err != nil {
					return Echoed{}, err
				}
			}
			return Echoed(m), nil
		})
		client, conn := dialPaused(t, r)
		call := routertest.Start(client, Echo{7})
		time.Sleep(9 * time.Minute)
		assert.LessOrEqual(t, conn.QueueStats().Messages, 5)
		resume(client)
		want := 0
		for n := range routertest.Items[int](call) {
			assert.Equal(t, want, n)
			want++
		}
		assert.Equal(t, updates, want)
		assert.Equal(t, Echoed{7}, routertest.ReceiveAnswer[Echoed](call))
	})
}
