package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wire"
)

// TestClientCalls_AnswerAndEndOfWaitSettleOnce answers a call in the instant in which its caller
// ends the wait, in both orders.
func TestClientCalls_AnswerAndEndOfWaitSettleOnce(t *testing.T) {
	c := &Conn{router: New(nil)}
	answer := func(id string) *incoming {
		return &incoming{head: wire.Head{Meta: wire.Meta{CorrelationID: []byte(id)}}}
	}
	assert.False(t, c.answerClientCall(answer("$ws:1")), "there has been no call")

	answered, err := c.beginClientCall()
	require.NoError(t, err)
	assert.Equal(t, "$ws:1", answered.id)
	first := answer("$ws:1")
	assert.True(t, c.answerClientCall(first))
	assert.False(t, c.answerClientCall(answer("$ws:1")), "duplicate")
	assert.Same(t, first, c.endClientCall(answered), "the answer came first")

	ended, err := c.beginClientCall()
	require.NoError(t, err)
	assert.Nil(t, c.endClientCall(ended))
	assert.False(t, c.answerClientCall(answer("$ws:2")), "late")
	assert.Nil(t, c.extra().clientCalls.Load().waiting, "without calls there is no map")
}
