package calls

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestOutgoing_AnswerAndEndOfWaitSettleOnce answers a call in the instant in which its caller
// ends the wait, in both orders.
func TestOutgoing_AnswerAndEndOfWaitSettleOnce(t *testing.T) {
	var none *Outgoing[string]
	assert.False(t, none.Deliver("$ws:1", "early"), "there has been no call")
	calls := new(Outgoing[string])
	assert.False(t, calls.Deliver("$ws:1", "early"), "there has been no call")

	answered, _ := calls.Begin(1)
	assert.Equal(t, "$ws:1", answered.ID)
	assert.True(t, calls.Deliver("$ws:1", "first"))
	assert.False(t, calls.Deliver("$ws:1", "second"), "duplicate")
	answer, ok := calls.End(answered)
	assert.True(t, ok)
	assert.Equal(t, "first", answer, "the answer came first")

	ended, _ := calls.Begin(1)
	_, ok = calls.End(ended)
	assert.False(t, ok)
	assert.False(t, calls.Deliver("$ws:2", "late"))
	assert.Nil(t, calls.waiting, "without calls there is no map")
}
