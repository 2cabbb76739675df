package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
)

// A silentEngine carries nothing.
type silentEngine struct{}

func (silentEngine) Channel(kind Kind, name string) Channel {
	return Channel{Name: string(kind) + ":" + name}
}
func (silentEngine) Connect(string, Events) Link { return silentLink{} }

type silentLink struct{}

func (silentLink) Path(int) string                     { return "" }
func (silentLink) Publish(context.Context, []*Message) {}
func (silentLink) SetSubscribed(Channel, bool)         {}
func (silentLink) Probes() []Probe                     { return nil }
func (silentLink) Suspect(Channel)                     {}
func (silentLink) Reconnect(Channel)                   {}
func (silentLink) Close()                              {}

// TestNode_LateMessageDoesNotReviveNode receives a packet after the leave message of its
// sender, as may happen on another connection.
func TestNode_LateMessageDoesNotReviveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, received := 0, 0
		s := New(silentEngine{}).Connect(broker.Callbacks{
			Receive:    func(string, string, []byte) { received++ },
			Subscribed: func(string) {},
			NodeLeft:   func(string) { left++ },
		}).(*Node)
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

// TestNode_PauseOutdatesWhatWaits notifies a node, whose messages the server does not take, that
// its process was paused.
func TestNode_PauseOutdatesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(stuckEngine{}).Connect(broker.Callbacks{}).(*Node)
		defer s.Kill()
		packets := func() int {
			s.outbox.mu.Lock()
			defer s.outbox.mu.Unlock()
			return s.outbox.packets
		}
		const waiting = 3
		time.Sleep(heartbeatInterval) // the server has got the first batch, which ends after publishTimeout
		for range waiting {
			_ = s.Publish("news", []byte("packet"))
		}
		s.wake(publishTimeout)
		assert.Equal(t, waiting, packets(), "an attempt to publish them may take as long")
		s.wake(publishTimeout + 1)
		assert.Zero(t, packets())
	})
}

// A stuckEngine takes what is published, and does not respond.
type stuckEngine struct{ silentEngine }

func (stuckEngine) Connect(string, Events) Link { return stuckLink{} }

type stuckLink struct{ silentLink }

func (stuckLink) Publish(ctx context.Context, _ []*Message) { <-ctx.Done() }

func TestProbes_MayReturnBeforePublishDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ps probes
		p := Probe{Channel: Channel{Name: "probe"}, Idle: time.Minute}
		ps.keep([]Probe{p})
		assertCheck := func(p Probe, lost, late bool, why string) {
			t.Helper()
			isLost, isLate := ps.check(p)
			assert.Equal(t, lost, isLost, why)
			assert.Equal(t, late, isLate, why)
		}
		returned := func(number uint64) { ps.returned("probe", &nodeMessage{packet: []byte{byte(number)}}) }
		first := ps.next(p)
		returned(first)
		ps.published("probe", first)
		time.Sleep(2 * probeTimeout)
		assertCheck(p, false, false, "it has returned")
		second := ps.next(p)
		ps.published("probe", second)
		time.Sleep(2 * probeTimeout)
		busy := p
		busy.Idle = 0
		assertCheck(busy, false, false, "the probe may wait behind other messages")
		assertCheck(p, false, true, "nothing arrives")
		ps.restart()
		assertCheck(p, false, false, "this process was paused")
		third, fourth := ps.next(p), ps.next(p)
		ps.published("probe", third)
		returned(second)
		returned(fourth) // it was published, but the outcome is not known yet
		assertCheck(p, true, false, "the third one does not arrive any more")
		assertCheck(p, false, false, "the loss was handled")
		ps.published("probe", fourth)
		time.Sleep(2 * probeTimeout)
		assertCheck(p, false, false, "all have returned or are lost")
	})
}
