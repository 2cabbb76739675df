package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// callTimeout is Timeouts.Call in tests of calls that have no answer.
const callTimeout = 5 * time.Second

func callText(id, text string) string {
	return fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":%q},"payload":{"n":1,"text":%q}}`, id, text)
}

// TestCall_ExpiredCallFreesInboundBytes lets expired calls make room for messages that were not read.
func TestCall_ExpiredCallFreesInboundBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeouts := patient
		timeouts.Call = callTimeout
		r := router.New(discardLogs(router.Options{Timeouts: timeouts, Limits: router.Limits{InboundBytes: 10_000}}))
		proceed := make(chan struct{})
		router.On(r, func(*router.Context, Nothing) error { <-proceed; return nil })
		router.RPC(r, func(*router.Context, Echo) (Echoed, error) { panic("a call has started") })
		client := routertest.Dial(t, r)
		client.Send(Nothing{})
		synctest.Wait()
		start := time.Now()
		go func() {
			for n := range 30 {
				client.SendText(callText(fmt.Sprint(n), strings.Repeat("x", 4000)))
			}
		}()
		for range 30 {
			assert.Contains(t, client.Next().Text, "DEADLINE_EXCEEDED")
		}
		assert.Less(t, time.Since(start), 30*callTimeout)
		close(proceed)
	})
}
