package clienttest_test

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var sessionScenarios = []entry{
	{92, "a session is resumed with its topics and positions", func(s *scenario) {
		p := s.openSession()
		p.publish(18, said{N: 18})
		s.messages(18)
		p.cut()
		p = s.accept()
		f := p.expect("$ws:resume")
		require.Equal(s, "id.secret1", f.Payload.Token)
		require.Len(s, f.Payload.Topics, 1)
		require.Equal(s, room, f.Payload.Topics[0].Topic)
		require.Equal(s, uint64(18), f.Payload.Topics[0].Offset)
		p.resumed(f, at(18))
		require.Equal(s, f.Meta.ID, p.expect("$ws:ack").Meta.ID)
		p.publish(19, said{N: 19})
		s.messages(19)
		p.refuse("$ws:subscribe", time.Second)
		p.cut()
		p = s.accept()
		require.Equal(s, "id.secret2", p.expect("$ws:resume").Payload.Token)
	}},
	{93, "a session that has ended is replaced, and the client subscribes by itself", func(s *scenario) {
		p := s.openSession()
		p.cut()
		p = s.accept()
		p.reject(p.expect("$ws:resume"), "NOT_FOUND")
		p.presented(17, at(17))
		p.publish(18, said{N: 18})
		s.messages(18)
		s.state("open")
		p.cut()
		p = s.accept()
		require.Equal(s, "id.secret1", p.expect("$ws:resume").Payload.Token, "of the new session")
	}},
	{94, "a topic that is not resumed ends", func(s *scenario) {
		p := s.openSession()
		p.cut()
		p = s.accept()
		p.resumed(p.expect("$ws:resume"), map[string]any{"topic": room, "error": map[string]any{"code": "PERMISSION_DENIED", "retryable": false}})
		if f, again := p.frames.take(func(f *frame) bool { return f.Type == "$ws:subscribe" }, s.clock.real(2*time.Second)); again {
			p.reject(f, "PERMISSION_DENIED")
		}
		require.Equal(s, "PERMISSION_DENIED", s.event("ended", nil).Code)
		p.refuse("$ws:subscribe", 5*time.Second)
	}},
	{95, "what a resumed topic has lost is one loss", func(s *scenario) {
		p := s.openSession()
		p.cut()
		p = s.accept()
		p.resumed(p.expect("$ws:resume"), map[string]any{"topic": room, "epoch": "K1", "offset": 90, "recovered": false})
		s.event("loss", nil)
		s.none("loss", time.Second)
	}},
	{146, "goaway with a session answers calls before the session has left, and loses none", func(s *scenario) {
		old := s.openSession()
		a := s.call(1)
		f := old.expectN("ASK", 1)
		old.send("$ws:goaway", nil, map[string]int{"reconnectAfterMs": 300})
		p := s.accept()
		old.answer(f)
		s.succeeded(a)
		p.resumed(p.expect("$ws:resume"), at(17))
		old.refuse("ASK", time.Second)
		b := s.call(2)
		p.answer(p.expectN("ASK", 2))
		s.succeeded(b)
		p.publish(18, said{N: 18})
		s.messages(18)
		s.noDial(3 * time.Second)
	}},
	{96, "calls wait until the session is resumed", func(s *scenario) {
		p := s.openSession()
		p.cut()
		s.state("waiting")
		id := s.call(1)
		p = s.accept()
		f := p.expect("$ws:resume")
		p.refuse("ASK", time.Second)
		p.resumed(f, at(17))
		p.answer(p.expect("ASK"))
		s.succeeded(id)
	}},
	{97, "subscriptions that the server has made are received and resumed", func(s *scenario) {
		s.withSession()
		p := s.open(clientOptions{Session: true})
		p.send("$ws:subscribed", nil, map[string]any{"topic": room, "epoch": "K1", "offset": 17})
		p.publish(18, said{N: 18})
		p.publish(18, said{N: 18})
		s.messages(18)
		p.cut()
		p = s.accept()
		f := p.expect("$ws:resume")
		require.Len(s, f.Payload.Topics, 1)
		require.Equal(s, uint64(18), f.Payload.Topics[0].Offset)
		p.resumed(f, at(18))
		p.publish(19, said{N: 19})
		s.messages(19)
		p.send("$ws:unsubscribed", nil, map[string]string{"topic": room})
		id := s.call(1)
		p.answer(p.expect("ASK"))
		s.succeeded(id) // the client has received everything
		p.cut()
		require.Empty(s, s.accept().expect("$ws:resume").Payload.Topics)
	}},
	{98, "a token is refreshed before the identity expires", func(s *scenario) {
		p := s.open(clientOptions{Tokens: []string{"first", "second"}})
		s.event("token", nil)
		p.send("$ws:identity-expiring", nil, map[string]int{"expiresInMs": 20_000})
		f := p.expect("$ws:auth")
		require.Equal(s, "second", f.Payload.Token)
		p.reply(f, "$ws:authenticated", map[string]int{"expiresInMs": 3_600_000})
		p.refuse("$ws:auth", 5*time.Second)
		s.noDial(0)
	}},
}

var closingScenarios = []entry{
	{99, "close rejects what waits and what was sent", func(s *scenario) {
		p := s.open(clientOptions{})
		sent := s.call(1)
		p.expect("ASK")
		s.close()
		require.NotEmpty(s, s.settled(sent).Code)
		s.succeeded("close")
		require.Equal(s, 1000, p.await())
		s.noDial(10 * time.Second)
	}},
	{100, "close rejects what waits for a connection", func(s *scenario) {
		gate := make(chan struct{})
		defer close(gate)
		s.handshakeWaits(gate)
		s.create(clientOptions{})
		call, event := s.call(1), s.say(2)
		s.clock.sleep(time.Second)
		s.close()
		require.NotEmpty(s, s.settled(call).Code)
		require.NotEmpty(s, s.settled(event).Code)
		s.succeeded("close")
	}},
	{101, "close waits for a silent server at most 2 s", func(s *scenario) {
		p := s.open(clientOptions{})
		p.mute()
		start := time.Now()
		s.close()
		s.succeeded("close")
		assert.Less(s, s.clock.since(start), 10*time.Second)
		p.cut()
	}},
	{102, "a closed client fails at once", func(s *scenario) {
		s.open(clientOptions{})
		s.close()
		s.succeeded("close")
		s.state("closed")
		for _, id := range []string{s.call(1), s.say(2)} {
			require.NotEmpty(s, s.settled(id).Code)
		}
		s.noDial(time.Second)
	}},
	{103, "close ends the delay before the next attempt", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1013, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":3600000}`)
		s.state("waiting")
		s.close()
		s.succeeded("close")
		s.noDial(time.Second)
	}},
	{104, "nothing accumulates over many connections", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.subscribe(room, topicOptions{})
		p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", at(0))
		s.succeeded(id)
		for n := range 6 {
			call := s.call(n)
			p.expect("ASK")
			p.cut()
			s.lost(call)
			p = s.accept()
			p.presented(uint64(n), at(uint64(n)))
			p.publish(uint64(n+1), said{N: n + 1})
			s.messages(n + 1)
			s.clock.sleep(6 * time.Second) // so that the delay begins again
		}
		s.none("message", time.Second)
	}},
}

// withSession makes the server open sessions.
func (s *server) withSession() {
	s.welcome = func(hello *frame) map[string]any {
		if !hello.Payload.Session {
			return nil
		}
		return map[string]any{"session": map[string]any{"token": "id.secret1", "resumeWithinMs": 120_000}}
	}
}

// openSession creates a client with a session that is subscribed to room.
func (s *scenario) openSession() *peer {
	s.Helper()
	s.withSession()
	p := s.open(clientOptions{Session: true})
	s.state("open")
	id := s.subscribe(room, topicOptions{})
	p.reply(p.expect("$ws:subscribe"), "$ws:subscribed", at(17))
	s.succeeded(id)
	return p
}

// resumed answers the request to resume a session.
func (p *peer) resumed(f *frame, topics ...any) {
	p.reply(f, "$ws:resumed", map[string]any{"session": map[string]any{"token": "id.secret2", "resumeWithinMs": 120_000}, "topics": topics})
}
