package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestClientCalls_AnswerAndEndOfWaitSettleOnce answers a call in the instant in which its caller
// ends the wait, in both orders.
func TestClientCalls_AnswerAndEndOfWaitSettleOnce(t *testing.T) {
	var none *clientCalls[string]
	assert.False(t, none.deliver("$ws:1", "early"), "there has been no call")
	calls := new(clientCalls[string])
	assert.False(t, calls.deliver("$ws:1", "early"), "there has been no call")

	answered, _ := calls.begin(1)
	assert.Equal(t, "$ws:1", answered.id)
	assert.True(t, calls.deliver("$ws:1", "first"))
	assert.False(t, calls.deliver("$ws:1", "second"), "duplicate")
	answer, ok := calls.end(answered)
	assert.True(t, ok)
	assert.Equal(t, "first", answer, "the answer came first")

	ended, _ := calls.begin(1)
	_, ok = calls.end(ended)
	assert.False(t, ok)
	assert.False(t, calls.deliver("$ws:2", "late"), "late")
	assert.Nil(t, calls.waiting, "without calls there is no map")
}
