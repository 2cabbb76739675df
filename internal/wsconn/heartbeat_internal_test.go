package wsconn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// TestConnRTT_IgnoresPongThatArrivedWhileThePingWasPrepared has a chunk that arrives after tick has looked at the
// chunks, and before it has taken the time of the ping.
func TestConnRTT_IgnoresPongThatArrivedWhileThePingWasPrepared(t *testing.T) {
	for _, early := range []time.Duration{0, 1} {
		c := &Conn{opts: NewTestOptions()}
		const pong = "\x8a\x80\x00\x00\x00\x00"
		c.accept(netpoll.CopyBuffer([]byte(pong)), len(pong))
		c.pingedAt, c.pingedAfter = time.Duration(c.lastSeen.Load())+early, 0
		require.NoError(t, c.readControls())
		assert.Equal(t, early == 0, c.RTT() > 0)
	}
}
