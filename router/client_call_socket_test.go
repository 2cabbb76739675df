package router_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/router"
)

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
