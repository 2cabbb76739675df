package clienttest_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const room = "room/go"

var topicScenarios = []entry{
	{56, "publications of a topic without history are received", func(s *scenario) {
		p, _ := s.subscribed(map[string]any{"topic": room})
		for n := range 3 {
			p.send("SAID", nil, said{N: n})
		}
		s.messages(0, 1, 2)
	}},
	{57, "publications are handled in order, each once", func(s *scenario) {
		p, id := s.subscribed(at(17))
		for _, offset := range []uint64{18, 19, 19, 18, 20} {
			p.publish(offset, said{N: int(offset)})
		}
		s.messages(18, 19, 20)
		s.none("message", time.Second)
		require.Equal(s, uint64(20), s.position(id).Offset)
	}},
	{58, "a handler that fails does not stop those behind it", func(s *scenario) {
		p, id := s.subscribed(at(17))
		p.publish(18, said{N: 18, Throw: true})
		p.publish(19, said{N: 19})
		s.messages(18, 19)
		s.eventually(func() bool { return s.position(id).Offset == 19 })
	}},
	{59, "a subscription of two users is one on the server", func(s *scenario) {
		p, a := s.subscribed(at(17))
		b := s.subscribe(room, topicOptions{})
		s.succeeded(b)
		p.refuse("$ws:subscribe", time.Second)
		s.unsubscribe(a)
		p.refuse("$ws:unsubscribe", time.Second)
		p.publish(18, said{N: 18})
		s.messages(18)
		s.unsubscribe(b)
		p.reply(p.expect("$ws:unsubscribe"), "$ws:unsubscribed", map[string]string{"topic": room})
	}},
	{60, "a subscription that is rejected for good fails", func(s *scenario) {
		p := s.open(clientOptions{})
		for _, code := range []string{"PERMISSION_DENIED", "NOT_FOUND"} {
			id := s.subscribe(room, topicOptions{})
			p.reject(p.expect("$ws:subscribe"), code)
			s.failed(id, code)
		}
		p.refuse("$ws:subscribe", 5*time.Second)
		p.cut()
		s.reopened().refuse("$ws:subscribe", time.Second)
	}},
	{61, "a subscription that a limit rejects is tried again after the delay", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.subscribe(room, topicOptions{})
		p.reject(p.expect("$ws:subscribe"), "RESOURCE_EXHAUSTED", "retryable", true, "retryAfterMs", 3000)
		rejected := time.Now()
		f := p.expect("$ws:subscribe")
		assert.Greater(s, s.clock.between(rejected, f.At), 2900*time.Millisecond)
		p.reply(f, "$ws:subscribed", at(17))
		s.succeeded(id)
	}},
	{62, "what is wanted is what the server is asked for", func(s *scenario) {
		p := s.open(clientOptions{})
		a := s.subscribe(room, topicOptions{})
		f := p.expect("$ws:subscribe")
		p.reply(f, "$ws:subscribed", at(1))
		s.succeeded(a)
		s.unsubscribe(a)
		b := s.subscribe(room, topicOptions{})
		p.reply(p.expect("$ws:unsubscribe"), "$ws:unsubscribed", map[string]string{"topic": room})
		f = p.expect("$ws:subscribe")
		p.reply(f, "$ws:subscribed", at(5))
		s.succeeded(b)
		p.publish(6, said{N: 6})
		s.messages(6)
	}},
	{63, "a subscription that ended without a connection is not made again", func(s *scenario) {
		p, id := s.subscribed(at(17))
		gate := make(chan struct{})
		s.handshakeWaits(gate)
		p.cut()
		s.state("waiting")
		s.unsubscribe(id)
		close(gate)
		s.reopened().refuse("$ws:subscribe", time.Second)
	}},
	{64, "a hundred subscriptions are made again although a limit rejects most", func(s *scenario) {
		p := s.open(clientOptions{})
		for i := range 100 {
			s.subscribe(fmt.Sprintf("room/%d", i), topicOptions{})
		}
		for range 100 {
			f := p.expect("$ws:subscribe")
			p.reply(f, "$ws:subscribed", map[string]any{"topic": f.Payload.Topic})
		}
		p.cut()
		p = s.accept()
		requests, accepted := 0, map[string]bool{}
		for ; len(accepted) < 100; requests++ {
			f := p.expect("$ws:subscribe")
			if requests%20 >= 10 && requests < 100 {
				p.reject(f, "RESOURCE_EXHAUSTED", "retryable", true, "retryAfterMs", 1000)
				continue
			}
			require.False(s, accepted[f.Payload.Topic], "each topic is accepted once")
			accepted[f.Payload.Topic] = true
			p.reply(f, "$ws:subscribed", map[string]any{"topic": f.Payload.Topic})
		}
		assert.Less(s, requests, 200)
		p.refuse("$ws:subscribe", 3*time.Second)
	}},
	{65, "the members of a topic are reported", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.subscribe(room, topicOptions{Presence: true})
		f := p.expect("$ws:subscribe")
		require.True(s, f.Payload.Presence)
		member := func(id string) map[string]string { return map[string]string{"connId": id} }
		p.reply(f, "$ws:subscribed", map[string]any{"topic": room, "members": []any{member("A"), member("B")}})
		s.succeeded(id)
		require.Equal(s, 2, s.event("presence", nil).N)
		p.send("$ws:presence", nil, map[string]any{"topic": room, "joined": []any{member("C"), member("A")}, "left": []any{member("B"), member("A")}})
		require.Equal(s, 2, s.event("presence", nil).N)
		p.cut()
		p = s.accept()
		p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", map[string]any{"topic": room, "members": []any{member("D")}})
		require.Equal(s, 1, s.event("presence", nil).N)
	}},
	{66, "the state comes before what follows it", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.subscribe(room, topicOptions{State: true})
		f := p.expect("$ws:subscribe")
		require.True(s, f.Payload.State)
		p.reply(f, "$ws:subscribed", map[string]any{"topic": room, "epoch": "K1", "offset": 17, "state": 2})
		s.succeeded(id)
		p.publish(4, said{N: 4})
		p.publish(15, said{N: 15})
		p.publish(18, said{N: 18})
		for _, n := range []int{4, 15, 18} {
			e := s.event("message", nil)
			require.Equal(s, n, e.N)
			require.Equal(s, n < 18, e.FromState)
		}
		require.Equal(s, uint64(18), s.position(id).Offset)
	}},
	{140, "a large state comes between publications", func(s *scenario) {
		p, id := s.subscribedToPart()
		p.publish(4, said{N: 4})
		p.publish(18, said{N: 18})
		p.publish(15, said{N: 15})
		p.publish(19, said{N: 19})
		for _, n := range []int{4, 18, 15, 19} {
			e := s.event("message", nil)
			require.Equal(s, n, e.N)
			require.Equal(s, n < 18, e.FromState)
		}
		require.Zero(s, s.position(id).Offset)
		p.send("$ws:state", nil, map[string]string{"topic": room})
		s.eventually(func() bool { return s.position(id).Offset == 19 })
		p.publish(17, said{N: 17})
		p.publish(20, said{N: 20})
		s.messages(20)
	}},
	{141, "a large state that was interrupted is asked for again", func(s *scenario) {
		p, _ := s.subscribedToPart()
		p.publish(18, said{N: 18})
		p.cut()
		f := s.accept().expect("$ws:subscribe")
		require.True(s, f.Payload.State)
		require.Empty(s, f.Payload.Epoch)
	}},
	{142, "a large state that ends with an error is asked for again, or ends the subscription", func(s *scenario) {
		p, _ := s.subscribedToPart()
		p.publish(18, said{N: 18})
		p.endState("UNAVAILABLE", true)
		f := p.expect("$ws:subscribe")
		require.True(s, f.Payload.State)
		require.Empty(s, f.Payload.Epoch)
		p.reply(f, "$ws:subscribed", map[string]any{"topic": room, "epoch": "K1", "offset": 18, "recovered": true, "state": 0, "more": true})
		p.endState("FAILED_PRECONDITION", false)
		s.event("ended", nil)
	}},
	{106, "a subscription that the server has ended does not end the next one", func(s *scenario) {
		p, a := s.subscribed(at(17))
		p.cut()
		p = s.accept()
		p.reject(p.expect("$ws:subscribe"), "PERMISSION_DENIED")
		s.event("ended", nil)
		b := s.subscribe(room, topicOptions{})
		p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", at(20))
		s.succeeded(b)
		s.unsubscribe(a)
		p.refuse("$ws:unsubscribe", time.Second)
		p.publish(21, said{N: 21})
		s.messages(21)
	}},
}

// at returns an answer to a subscription to room, with a position in the epoch K1.
func at(offset uint64) map[string]any {
	return map[string]any{"topic": room, "epoch": "K1", "offset": offset, "recovered": true}
}

// subscribed creates a client that is subscribed to room.
func (s *scenario) subscribed(answer map[string]any) (p *peer, id string) {
	s.Helper()
	p = s.open(clientOptions{})
	id = s.subscribe(room, topicOptions{})
	p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", answer)
	s.succeeded(id)
	return p, id
}

// eventually waits until a condition holds.
func (s *scenario) eventually(condition func() bool) {
	s.Helper()
	for end := time.Now().Add(s.clock.limit); !condition(); {
		require.True(s, time.Now().Before(end))
		s.clock.sleep(20 * time.Millisecond)
	}
}

// handshakeWaits delays handshakes until a channel is closed.
func (s *scenario) handshakeWaits(gate <-chan struct{}) { s.gate.Store(&gate) }

var recoveryScenarios = []entry{
	{67, "after an interruption, what was missed comes once and in order", func(s *scenario) {
		p, _ := s.subscribed(at(17))
		p.publish(18, said{N: 18})
		s.messages(18)
		p.cut()
		p = s.accept()
		p.presented(18, at(18))
		for n := 19; n <= 22; n++ {
			p.publish(uint64(n), said{N: n})
		}
		s.messages(19, 20, 21, 22)
		s.none("loss", time.Second)
	}},
	{68, "a gap is filled before anything behind it is handled", func(s *scenario) {
		p, _ := s.subscribed(at(17))
		p.publish(18, said{N: 18})
		p.publish(21, said{N: 21})
		f := p.expect("$ws:subscribe")
		require.Equal(s, uint64(18), f.Payload.Offset)
		p.publish(19, said{N: 19}) // before the answer: both come again after it
		p.publish(22, said{N: 22})
		p.reply(f, "$ws:subscribed", at(18))
		for n := 19; n <= 23; n++ {
			p.publish(uint64(n), said{N: n})
		}
		s.messages(18, 19, 20, 21, 22, 23)
		p.refuse("$ws:subscribe", time.Second)
	}},
	{69, "what cannot be recovered is one loss", func(s *scenario) {
		p, id := s.subscribed(at(17))
		p.cut()
		p = s.accept()
		p.presented(17, map[string]any{"topic": room, "epoch": "K1", "offset": 40, "recovered": false})
		s.event("loss", nil)
		p.publish(41, said{N: 41})
		s.messages(41)
		s.none("loss", time.Second)
		require.Equal(s, uint64(41), s.position(id).Offset)
	}},
	{70, "the end of an epoch is one loss", func(s *scenario) {
		p, id := s.subscribed(at(17))
		p.cut()
		p = s.accept()
		p.presented(17, map[string]any{"topic": room, "epoch": "K2", "offset": 16, "recovered": true, "ended": map[string]any{"epoch": "K1", "offset": 16}})
		require.True(s, s.event("loss", nil).Ended)
		p.publish(17, said{N: 17})
		s.messages(17)
		s.none("loss", time.Second)
		require.Equal(s, "K2", s.position(id).Epoch)
	}},
	{71, "lost publications are reported in order with the others", func(s *scenario) {
		p, id := s.subscribed(at(17))
		p.publish(18, said{N: 18})
		p.send("$ws:position", nil, map[string]any{"topic": room, "epoch": "K1", "offset": 21, "lost": map[string]int{"from": 19, "to": 21}})
		p.publish(22, said{N: 22})
		var names []string
		for len(names) < 3 {
			e, ok := s.driver.events().take(func(e event) bool { return e.Name == "message" || e.Name == "loss" }, s.clock.limit)
			require.True(s, ok)
			names = append(names, fmt.Sprint(e.Name, e.N, e.From, e.To))
		}
		require.Equal(s, []string{"message18 0 0", "loss0 19 21", "message22 0 0"}, names)
		require.Equal(s, uint64(22), s.position(id).Offset)
	}},
	{72, "a position that moves is not a loss", func(s *scenario) {
		p, id := s.subscribed(at(17))
		p.send("$ws:position", nil, map[string]any{"topic": room, "epoch": "K1", "offset": 18})
		p.publish(19, said{N: 19})
		s.messages(19)
		s.none("loss", time.Second)
		require.Equal(s, uint64(19), s.position(id).Offset)
	}},
	{73, "an unknown loss is reported", func(s *scenario) {
		p, _ := s.subscribed(at(17))
		p.send("$ws:position", nil, map[string]any{"topic": room, "epoch": "K2", "offset": 3, "reset": true})
		s.event("loss", nil)
		p.publish(4, said{N: 4})
		s.messages(4)
	}},
	{74, "an application continues at a position that it has stored", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.subscribe(room, topicOptions{Epoch: "K1", Offset: 5})
		p.presented(5, at(5))
		s.succeeded(id)
		p.publish(6, said{N: 6})
		s.messages(6)
	}},
	{75, "the state replaces what was lost", func(s *scenario) {
		p := s.open(clientOptions{})
		s.subscribe(room, topicOptions{State: true})
		p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", map[string]any{"topic": room, "epoch": "K1", "offset": 17, "state": 0})
		p.send("$ws:position", nil, map[string]any{"topic": room, "epoch": "K1", "offset": 21, "lost": map[string]int{"from": 18, "to": 21}})
		f := p.expect("$ws:subscribe")
		require.True(s, f.Payload.State)
		require.Empty(s, f.Payload.Epoch, "with a position, the server sends what is missing instead")
		p.reply(f, "$ws:subscribed", map[string]any{"topic": room, "epoch": "K1", "offset": 22, "state": 1})
		p.publish(20, said{N: 20})
		p.publish(23, said{N: 23})
		s.messages(20, 23)
	}},
	{76, "publications of another connection are ignored while the client resubscribes", func(s *scenario) {
		p, _ := s.subscribed(at(17))
		p.cut()
		p = s.accept()
		f := p.expect("$ws:subscribe")
		p.publish(30, said{N: 30})
		p.reply(f, "$ws:subscribed", at(17))
		for n := 18; n <= 31; n++ {
			p.publish(uint64(n), said{N: n})
		}
		s.messages(18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
		s.none("message", time.Second)
	}},
	{77, "subscriptions of several interruptions do not add up", func(s *scenario) {
		p, _ := s.subscribed(at(0))
		for n := range 8 {
			p.publish(uint64(n+1), said{N: n + 1})
			s.messages(n + 1)
			p.cut()
			p = s.accept()
			p.presented(uint64(n+1), at(uint64(n+1)))
			p.refuse("$ws:subscribe", 0)
		}
		p.publish(9, said{N: 9})
		s.messages(9)
		s.none("message", time.Second)
	}},
}

// subscribedToPart subscribes to a state at offset 17, which comes later.
func (s *scenario) subscribedToPart() (p *peer, id string) {
	s.Helper()
	p = s.open(clientOptions{})
	id = s.subscribe(room, topicOptions{State: true})
	p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", map[string]any{"topic": room, "epoch": "K1", "offset": 17, "recovered": true, "state": 0, "more": true})
	s.succeeded(id)
	return p, id
}

// endState ends a subscription whose state is not complete.
func (p *peer) endState(code string, retryable bool) {
	p.send("$ws:unsubscribed", nil, map[string]any{"topic": room, "error": map[string]any{"code": code, "message": "", "retryable": retryable}})
}

// presented expects a subscription from a position in the epoch K1, and answers it.
func (p *peer) presented(offset uint64, answer map[string]any) {
	p.server.t.Helper()
	f := p.expect("$ws:subscribe")
	require.Equal(p.server.t, "K1", f.Payload.Epoch)
	require.Equal(p.server.t, offset, f.Payload.Offset)
	p.reply(f, "$ws:subscribed", answer)
}
