package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
)

// TestSession_LateMessageDoesNotReviveNode receives a packet after the leave message of its
// sender, as may happen on another connection.
func TestSession_LateMessageDoesNotReviveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, received := 0, 0
		s := New(silentEngine{}).Connect(broker.Handler{
			Receive:    func(string, string, []byte) { received++ },
			Subscribed: func(string) {},
			NodeLeft:   func(string) { left++ },
		}).(*Session)
		defer s.Kill()
		s.Subscribe("news")
		receive := func(channel Channel, m nodeMessage) { s.received(channel.Name, m.encode()) }
		heartbeat := func() { receive(s.nodes, nodeMessage{kind: kindHeartbeat, from: s.name, packet: []byte{1}}) }
		heartbeat()
		receive(s.nodes, nodeMessage{kind: kindHeartbeat, from: "peer", packet: []byte{1}})
		receive(s.nodes, nodeMessage{kind: kindLeave, from: "peer"})
		receive(s.engine.Channel(TopicChannel, "news"), nodeMessage{kind: kindPacket, from: "peer", epoch: 1})
		for range 10 {
			time.Sleep(heartbeatInterval)
			heartbeat()
		}
		assert.Equal(t, 1, received)
		assert.Equal(t, 1, left)
	})
}

func TestProbes_MayReturnBeforePublishDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ps probes
		p := Probe{Channel: Channel{Name: "probe"}, Idle: time.Minute}
		ps.keep([]Probe{p})
		first := ps.next(p)
		ps.returned("probe", &nodeMessage{packet: []byte{byte(first)}})
		ps.published("probe", first)
		time.Sleep(2 * probeTimeout)
		assert.False(t, ps.isLost(p))
		ps.published("probe", ps.next(p))
		time.Sleep(2 * probeTimeout)
		busy := p
		busy.Idle = 0
		assert.False(t, ps.isLost(busy), "the probe may wait behind other messages")
		assert.True(t, ps.isLost(p))
	})
}
