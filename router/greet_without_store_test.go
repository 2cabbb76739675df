package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storeReturns is longer than a save that hangs takes, and the wait for the next one.
const storeReturns = 15 * time.Second

// TestResume_GreetingWithoutStoreFollowsWhatIsRevoked revokes access while the node of a client that has just greeted is
// cut off, and before.
func TestResume_GreetingWithoutStoreFollowsWhatIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _, cut := newCutRouters()
		other := &unreliableBroker{Broker: cut.Broker}
		two := newSessionRouter(other, nil)
		require.NoError(t, one.Revoke(t.Context(), "t", "ann", "plain/early"))
		_, err := one.DisconnectUser("t", "ann", 4403, "")
		require.NoError(t, err)
		time.Sleep(time.Second)
		c := dialSession(t, one, "ann")
		cut.store.Store(storeAway)
		c.hello()
		for _, topic := range []string{"plain/early", "plain/a", "plain/b"} {
			require.NoError(t, c.conn.Subscribe(topic))
		}
		time.Sleep(time.Second)
		other.silent.Store(true)
		require.NoError(t, two.Revoke(t.Context(), "t", "ann", "plain/a"))
		synctest.Wait()
		require.True(t, c.conn.Subscribed("plain/a"), "the packet was lost")
		cut.store.Store(storeWorks)
		time.Sleep(storeReturns)
		assert.False(t, c.conn.Subscribed("plain/a"))
		assert.True(t, c.conn.Subscribed("plain/b"))
		assert.True(t, c.conn.Subscribed("plain/early"), "it was granted later")
		c.Abort()
		synctest.Wait()
		topics := dialSession(t, two, "ann").resume(c.token, "").Topics
		assert.Len(t, topics, 2)
	})
}

// TestResume_GreetingThatIsNotAnsweredHasNoSession has a client that goes while the store hangs.
func TestResume_GreetingThatIsNotAnsweredHasNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _, cut := newCutRouters()
		c := dialSession(t, one, "ann")
		cut.store.Store(storeHangs)
		c.SendText(`{"type":"$ws:hello","meta":{"correlationId":"1"},"payload":{"session":true}}`)
		synctest.Wait()
		conn := c.conn
		c.Abort()
		synctest.Wait()
		assert.False(t, conn.Resumable())
	})
}
