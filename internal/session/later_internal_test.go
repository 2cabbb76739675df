package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
)

// keepBusy makes a node delay what no client waits for.
func (n *Node) keepBusy() {
	for range laterFree {
		n.later.add(func() {})
	}
}

// awaitLater waits until nodes have done what they delay.
func awaitLater() {
	time.Sleep(laterDelay)
	synctest.Wait()
}

// acknowledged reports whether the store knows that the client has the new token.
func (c *claimTest) acknowledged() bool { return c.store.record(c.first.id).Previous == nil }

func TestSession_StoresLaterWhatNoClientWaitsFor(t *testing.T) {
	runClaimTest(t, "few changes", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		k.Session.Acknowledge("r")
		synctest.Wait()
		assert.True(t, c.acknowledged(), "it is stored at once")
	})
	runClaimTest(t, "many changes", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		c.node.keepBusy()
		k.Session.Acknowledge("r")
		synctest.Wait()
		assert.False(t, c.acknowledged())
		awaitLater()
		assert.True(t, c.acknowledged())
	})
	runClaimTest(t, "a grant meanwhile", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		c.node.keepBusy()
		k.Session.Acknowledge("r")
		k.Session.Grant("late/a", Grant{})
		synctest.Wait()
		assert.True(t, c.acknowledged(), "it is stored with the grant")
		calls := c.store.calls
		awaitLater()
		assert.Equal(t, calls, c.store.calls)
	})
	runClaimTest(t, "the node is closed", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		c.node.keepBusy()
		k.Session.Acknowledge("r")
		c.node.Close(t.Context())
		assert.True(t, c.acknowledged(), "it is stored first")
	})
	runClaimTest(t, "the old token on the same node", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		c.node.keepBusy()
		k.Session.Acknowledge("r")
		c.req.Conn = &newTestConn("third").Conn
		_, err := c.node.Claim(t.Context(), &c.req)
		assert.Equal(t, errors.NotFound, errors.CodeOf(err), "the node knows that it has been replaced")
	})
}

// TestSession_StoresNothingAfterTheClientHasMoved disconnects a client that another node serves already, before its
// node has learned that.
func TestSession_StoresNothingAfterTheClientHasMoved(t *testing.T) {
	runClaimTest(t, "", func(t *testing.T, c *claimTest) {
		c.node.config.Publish = func(kind Packet, _ string, packet []byte) {
			time.AfterFunc(laterDelay/2, func() { c.first.node.Receive(kind, packet) })
		}
		k := c.claim()
		k.Announce()
		c.adopt(k)
		k.AnnounceMoved(nil)
		calls := c.store.calls
		c.first.node.keepBusy()
		c.first.Disconnected(false, false)
		awaitLater()
		assert.Equal(t, calls, c.store.calls)
	})
}

// TestClaim_WaitsForOthers claims sessions while there are few others, or many.
func TestClaim_WaitsForOthers(t *testing.T) {
	runClaimTest(t, "", func(t *testing.T, c *claimTest) {
		began := time.Now()
		c.claim()
		assert.Zero(t, time.Since(began), "there are few")
		c.node.keepBusy()
		time.Sleep(laterDelay / 2)
		c.req.Conn = &newTestConn("third").Conn
		c.claim()
		assert.Equal(t, laterDelay, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), laterDelay/2)
		defer cancel()
		_, _ = c.node.Claim(ctx, &c.req)
		assert.Equal(t, laterDelay*3/2, time.Since(began), "it waits no longer than its context")
		time.Sleep(3 * laterDelay)
		began = time.Now()
		_, _ = c.node.Claim(t.Context(), &c.req)
		assert.Zero(t, time.Since(began), "there are few again")
	})
}
