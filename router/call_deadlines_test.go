package router_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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
