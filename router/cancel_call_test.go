package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func abortText(id string) string {
	return fmt.Sprintf(`{"type":"$ws:abort","meta":{"correlationId":%q}}`, id)
}

// Block is a call that a test lets wait.
type Block struct{}

func (Block) MessageType() string { return "BLOCK" }

type Blocked struct{}

func (Blocked) MessageType() string { return "BLOCKED" }

func TestCall_ContextEndsWithCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error)
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
			go func() { <-ctx.Done(); ended <- context.Cause(ctx) }()
			if ctx.CorrelationID() == "waits" {
				<-ctx.Done()
			}
			return Blocked{}, context.Cause(ctx)
		})
		client := routertest.Dial(t, r)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"returns"}}`)
		assert.Equal(t, context.Canceled, <-ended)
		client.SendText(`{"type":"BLOCK","meta":{"correlationId":"waits"}}`)
		conn := collect(r)[0]
		synctest.Wait()
		client.CloseWith(4001, "bye")
		for _, cause := range []error{<-ended, context.Cause(conn.Context())} {
			closed, ok := errors.AsType[*router.CloseError](cause)
			require.True(t, ok)
			assert.Equal(t, router.CloseError{Code: 4001, Reason: "bye"}, *closed)
		}
	})
}

func TestRouteTimeout_PanicsOnMistakes(t *testing.T) {
	r := router.New(nil)
	event := router.On(r, func(*router.Context, Say) error { return nil })
	assert.PanicsWithValue(t, `router: Timeout of "SAY", which is an event; only calls have a deadline`, func() { event.Timeout(time.Second) })
	call := router.RPC(r, echo)
	assert.PanicsWithValue(t, `router: Timeout of "ECHO" is 0s; it must be positive`, func() { call.Timeout(0) })
	assert.PanicsWithValue(t, `router: Timeout of "ECHO" is -1s; it must be positive`, func() { call.Timeout(-time.Second) })
}
