package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestResume_AcknowledgmentWithAnotherIDHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r1"}}`) // before the session is resumed
		c.SendText(`{"type":"$ws:ack"}`)
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"other"}}`)
		c.SendText(`{"type":"$ws:ack"}`)
		synctest.Wait()
		assert.Zero(t, c.Pending())
		dialSession(t, r, "ann").resume(old.token, "")
	})
}
