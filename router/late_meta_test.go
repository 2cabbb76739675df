package router_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// lateMeta returns a message whose meta follows a long payload and is so long that ingress sees only
// the type. The members must be those of a JSON object, without braces.
func lateMeta(typ, members string) string {
	return fmt.Sprintf(`{"type":%q,"payload":{"pad":%q},"meta":{%s,"pad":%q}}`, typ, strings.Repeat("x", 10_000), members, strings.Repeat("y", 600))
}

func TestLateMeta_RejectedCallIsAnsweredWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		s.UseIngress(func(context.Context, router.IngressContext) error {
			return &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
		})
		client := routertest.Dial(t, s)
		client.SendText(lateMeta("ECHO", `"correlationId":"a"`))
		frame := client.Next()
		assert.Equal(t, "RPC_ERROR", frame.Type)
		assert.Equal(t, "a", frame.Meta.CorrelationID)
	})
}

func TestLateMeta_TimeoutBoundsStreamsAndCallsWithoutID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		router.Stream(s, func(ctx *router.Context, _ Block) iter.Seq2[int, error] {
			return func(func(int, error) bool) { <-ctx.Done() }
		})
		client := routertest.Dial(t, s)
		start := time.Now()
		client.SendText(lateMeta("BLOCK", `"correlationId":"a","timeoutMs":1000`))
		expired(t, client, "a")
		assert.Equal(t, time.Second, time.Since(start))

		client.SendText(lateMeta("BLOCK", `"timeoutMs":1000`))
		frame := client.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Contains(t, frame.Text, `"code":"DEADLINE_EXCEEDED"`)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// TestCall_DeadlineDuringIngressLeavesNoCall holds a call in ingress until after its deadline. Its ID
// must be free afterwards, and its answer must be the only one.
func TestCall_DeadlineDuringIngressLeavesNoCall(t *testing.T) {
	for name, text := range map[string]string{
		"call":                 callText("a", ""),
		"meta behind payload":  lateMeta("ECHO", `"correlationId":"a"`),
		"duplicate of another": callText("open", ""),
	} {
		runSynctest(t, name, func(t *testing.T) {
			s := newSlowRouter(router.Options{})
			var delay atomic.Int64
			s.UseIngress(func(context.Context, router.IngressContext) error {
				time.Sleep(time.Duration(delay.Load()))
				return nil
			})
			router.RPC(s, func(ctx *router.Context, _ Block) (Blocked, error) { <-s.proceed; return Blocked{}, nil }).Timeout(time.Hour)
			client := routertest.Dial(t, s)
			client.SendText(`{"type":"BLOCK","meta":{"correlationId":"open"}}`)
			synctest.Wait()

			delay.Store(int64(callTimeout + time.Second))
			client.SendText(text)
			assert.Contains(t, client.Next().Text, `"code":"DEADLINE_EXCEEDED"`)
			time.Sleep(2 * time.Second)
			delay.Store(0)
			assert.Zero(t, client.Pending(), "one answer")
			assert.Zero(t, s.handled.Load())
			assert.Zero(t, s.inFlight.Load()-1, "only the open call")

			client.SendText(callText("a", ""))
			assert.Equal(t, "ECHOED", client.Next().Type, "the ID is free")
			close(s.proceed)
			assert.Equal(t, "BLOCKED", client.Next().Type)
		})
	}
}
