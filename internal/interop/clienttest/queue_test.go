package clienttest_test

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var queueScenarios = []entry{
	{78, "messages that wait for a connection are sent once, in order", func(s *scenario) {
		gate := make(chan struct{})
		s.handshakeWaits(gate)
		s.create(clientOptions{})
		var ids []string
		for n := range 5 {
			ids = append(ids, s.say(n))
			s.clock.sleep(100 * time.Millisecond)
		}
		close(gate)
		p := s.accept()
		for n := range 5 {
			p.expectN("SAY", n)
		}
		for _, id := range ids {
			s.succeeded(id)
		}
		p.cut()
		s.reopened().refuse("SAY", time.Second)
	}},
	{79, "a full queue rejects the newest message", func(s *scenario) { s.overflow(false, 2) }},
	{80, "a full queue rejects the oldest message, if it is configured so", func(s *scenario) { s.overflow(true, 0) }},
	{81, "events that wait expire", func(s *scenario) {
		gate := make(chan struct{})
		s.handshakeWaits(gate)
		s.create(clientOptions{ExpireMs: 4000})
		s.failed(s.say(1), "DEADLINE_EXCEEDED")
		close(gate)
		s.accept().refuse("SAY", time.Second)
	}},
	{82, "a rejected message and those behind it are sent again in order", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		a, b, c := s.say(1), "", ""
		f := p.expectN("SAY", 1)
		require.True(s, f.Meta.Ack)
		b = s.say(2)
		s.clock.sleep(100 * time.Millisecond)
		c = s.say(3)
		p.refuse("SAY", time.Second) // until the outcome of the first one is known
		p.limited(f, 2000)
		rejected := time.Now()
		f = p.expectN("SAY", 1)
		assert.GreaterOrEqual(s, s.clock.between(rejected, f.At), 1900*time.Millisecond)
		p.reply(f, "$ws:ack", nil)
		p.reply(p.expectN("SAY", 2), "$ws:ack", nil)
		p.reply(p.expectN("SAY", 3), "$ws:ack", nil)
		for _, id := range []string{a, b, c} {
			s.succeeded(id)
		}
	}},
	{83, "a message that is rejected for good is not sent again", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		id := s.call(1)
		p.reject(p.expect("ASK"), "RESOURCE_EXHAUSTED", "retryAfterMs", nil, "details", map[string]any{"kind": "rate", "observed": 50, "limit": 20})
		s.failed(id, "RESOURCE_EXHAUSTED")
		p.refuse("ASK", 5*time.Second)
		s.manualAck.Store(false)
		p.answer(p.askedBy(s, 2))
	}},
	{84, "without pacing, a rejection is the error of the call", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.limited(p.expect("ASK"), 2000)
		require.Equal(s, 2000, s.failed(id, "RESOURCE_EXHAUSTED").RetryAfterMs)
		p.refuse("ASK", 5*time.Second)
	}},
	{85, "a rejected event is reported once", func(s *scenario) {
		p := s.open(clientOptions{})
		s.manualAck.Store(true)
		id := s.say(1)
		p.reject(p.expect("SAY"), "INVALID_ARGUMENT")
		if e := s.settled(id); e.Code == "" { // handed over to the connection
			require.Equal(s, "INVALID_ARGUMENT", s.event("error", nil).Code)
		} else {
			require.Equal(s, "INVALID_ARGUMENT", e.Code)
		}
		s.none("error", time.Second)
	}},
	{86, "an event whose admission is unknown is reported once, and not sent again", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		id := s.say(1)
		p.expect("SAY")
		p.cut()
		if e := s.settled(id); e.Code == "" {
			require.True(s, s.event("error", nil).Unknown)
		} else {
			require.True(s, e.Unknown)
		}
		s.reopened().refuse("SAY", 2*time.Second)
	}},
	{87, "a client waits until its bucket holds the cost", func(s *scenario) {
		s.announce(map[string]any{"capacity": 3, "refill": 1, "refillMs": 1000, "scope": "connection", "buckets": []any{map[string]any{"costs": map[string]any{"SAY": 1}}}})
		p := s.open(clientOptions{Pacing: true})
		for n := range 6 {
			s.say(n)
			s.clock.sleep(50 * time.Millisecond)
		}
		var times []time.Time
		for n := range 6 {
			times = append(times, p.expectN("SAY", n).At)
		}
		assert.Less(s, s.clock.between(times[0], times[2]), time.Second)
		assert.Greater(s, s.clock.between(times[0], times[5]), 2900*time.Millisecond)
	}},
	{88, "the greeting and heartbeats take tokens", func(s *scenario) {
		s.announce(map[string]any{"capacity": 2, "refill": 1, "refillMs": 10_000, "scope": "connection", "buckets": []any{map[string]any{"costs": map[string]any{"$ws:hello": 1, "SAY": 1}}}})
		p := s.open(clientOptions{Pacing: true})
		s.say(1)
		p.expectN("SAY", 1)
		s.say(2)
		p.refuse("SAY", 5*time.Second)
		p.expectN("SAY", 2)
	}},
	{89, "a message above the capacity fails at once", func(s *scenario) {
		s.announce(map[string]any{"capacity": 3, "refill": 1, "refillMs": 1000, "scope": "connection", "buckets": []any{map[string]any{"costs": map[string]any{"ASK": 5}}}})
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		start := time.Now()
		id := s.call(1)
		if f, sent := p.frames.take(func(f *frame) bool { return f.Type == "ASK" }, s.clock.real(time.Second)); sent {
			p.reject(f, "RESOURCE_EXHAUSTED", "retryAfterMs", nil, "details", map[string]any{"kind": "rate", "observed": 5, "limit": 3})
		}
		require.NotEmpty(s, s.settled(id).Code)
		assert.Less(s, s.clock.since(start), 5*time.Second)
	}},
	{90, "the user interface can show when a message is allowed", func(s *scenario) {
		s.announce(map[string]any{"capacity": 1, "refill": 1, "refillMs": 20_000, "scope": "connection", "buckets": []any{map[string]any{"costs": map[string]any{"SAY": 1}}}})
		p := s.open(clientOptions{Pacing: true})
		require.Zero(s, s.allowedIn("SAY"))
		s.say(1)
		p.expect("SAY")
		s.eventually(func() bool { return s.allowedIn("SAY") > 0 })
		assert.LessOrEqual(s, s.allowedIn("SAY"), 20_100)
	}},
	{91, "too many calls at a time wait for an answer", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		a, b := s.call(1), ""
		fa := p.expect("ASK")
		p.reply(fa, "$ws:ack", nil)
		b = s.call(2)
		p.reject(p.expectCall(2), "RESOURCE_EXHAUSTED", "retryable", true, "details", map[string]any{"kind": "in_flight", "observed": 2, "limit": 1})
		p.answer(fa)
		s.succeeded(a)
		p.answer(p.expectCall(2))
		s.succeeded(b)
	}},
	{108, "a call that other connections hold back is repeated after a moment", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		id, requests := s.call(1), 0
		for start := time.Now(); s.clock.since(start) < 10*time.Second; requests++ {
			p.reject(p.expect("ASK"), "RESOURCE_EXHAUSTED", "retryable", true, "details", map[string]any{"kind": "in_flight", "observed": 2, "limit": 1})
		}
		assert.Less(s, requests, 50)
		p.answer(p.expect("ASK"))
		s.succeeded(id)
	}},
	{109, "what a lost connection has not confirmed does not hold back the next one", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		var ids []string
		for n := range 12 {
			ids = append(ids, s.say(n))
			s.clock.sleep(20 * time.Millisecond)
		}
		reject := func(n int) {
			p.reject(p.expectN("SAY", n), "RESOURCE_EXHAUSTED", "retryable", true, "retryAfterMs", 200, "details", map[string]any{"kind": "rate", "observed": 1, "limit": 2})
		}
		ack := func(n int) { p.reply(p.expectN("SAY", n), "$ws:ack", nil) }
		for n := 0; n < 4; n += 2 { // the client learns the rate
			s.clock.sleep(300 * time.Millisecond)
			reject(n)
			ack(n)
			ack(n + 1)
		}
		reject(4)
		p.refuse("$ws:nothing", 3*time.Second) // until the client waits for confirmations
		p.cut()
		s.manualAck.Store(false)
		p = s.accept()
		for last := 0; last < 11; {
			n := p.expect("SAY").Payload.N
			require.Greater(s, n, last)
			last = n
		}
		for _, id := range ids {
			s.settled(id)
		}
	}},
	{110, "an event that waits to be sent again is reported when the client is closed", func(s *scenario) {
		p := s.open(clientOptions{Pacing: true})
		s.manualAck.Store(true)
		id := s.say(1)
		p.limited(p.expect("SAY"), 60_000)
		s.clock.sleep(time.Second)
		s.close()
		if e := s.settled(id); e.Code == "" {
			require.NotEmpty(s, s.event("error", nil).Code)
		}
		s.succeeded("close")
	}},
}

// overflow fills a queue of two messages, and expects that one fails.
func (s *scenario) overflow(oldest bool, fails int) {
	s.Helper()
	gate := make(chan struct{})
	s.handshakeWaits(gate)
	s.create(clientOptions{Messages: 2, Oldest: oldest})
	var ids []string
	for n := range 3 {
		ids = append(ids, s.say(n))
		s.clock.sleep(100 * time.Millisecond)
	}
	s.failed(ids[fails], "RESOURCE_EXHAUSTED")
	close(gate)
	p := s.accept()
	for n := range 3 {
		if n != fails {
			p.expectN("SAY", n)
			s.succeeded(ids[n])
		}
	}
}

// limited rejects a message because of a rate limit.
func (p *peer) limited(f *frame, retryAfterMs int) {
	p.reject(f, "RESOURCE_EXHAUSTED", "retryable", true, "retryAfterMs", retryAfterMs, "details", map[string]any{"kind": "rate", "observed": 1, "limit": 20})
}

// announce makes the server announce a limit.
func (s *server) announce(limit map[string]any) {
	limit["name"] = "messages"
	s.welcome = func(*frame) map[string]any { return map[string]any{"limits": []any{limit}} }
}

func (s *scenario) allowedIn(typ string) int {
	s.Helper()
	s.command(&command{Do: "allowed", ID: typ}, nil)
	return s.event("allowed", nil).Ms
}
