package clienttest_test

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var callScenarios = []entry{
	{28, "replies belong to their calls", func(s *scenario) {
		p := s.open(clientOptions{})
		a, b := s.call(1), s.call(2)
		fa := p.expectCall(1)
		fb := p.expectCall(2)
		require.NotEqual(s, fa.Meta.ID, fb.Meta.ID)
		p.answer(fb)
		p.answer(fa)
		require.Equal(s, 1, s.succeeded(a).N)
		require.Equal(s, 2, s.succeeded(b).N)
	}},
	{29, "an error has the code, the details and the delay of the server", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.reject(p.expect("ASK"), "ROOM_FULL", "message", "no place", "retryable", true, "retryAfterMs", 1500, "details", map[string]string{"reason": "full"})
		e := s.failed(id, "ROOM_FULL")
		require.Equal(s, event{Name: "settled", ID: id, Code: "ROOM_FULL", RetryAfterMs: 1500, Detail: "full", At: e.At}, e)
	}},
	{30, "the deadline of a call includes waiting, and the server learns what remains", func(s *scenario) {
		s.handshakeAfter(6 * time.Second)
		s.create(clientOptions{})
		id := s.callWithin(1, 30_000)
		f := s.accept().expect("ASK")
		assert.Greater(s, f.Meta.TimeoutMs, 500)
		assert.LessOrEqual(s, f.Meta.TimeoutMs, 24_000)
		e := s.failed(id, "DEADLINE_EXCEEDED")
		assert.False(s, e.Unknown)
	}},
	{31, "a late answer is ignored", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.callWithin(1, 1000)
		f := p.expect("ASK")
		s.failed(id, "DEADLINE_EXCEEDED")
		p.answer(f)
		again := s.call(2)
		p.answer(p.expectN("ASK", 2))
		require.Equal(s, 2, s.succeeded(again).N)
	}},
	{32, "a call that has timed out while it waited is not sent", func(s *scenario) {
		s.handshakeAfter(3 * time.Second)
		s.create(clientOptions{})
		id := s.callWithin(1, 1000)
		s.failed(id, "DEADLINE_EXCEEDED")
		s.accept().refuse("ASK", 2*time.Second)
	}},
	{33, "a call without an answer fails as unknown when the connection is lost, and is not sent again", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.expect("ASK")
		p.cut()
		s.lost(id)
		s.reopened().refuse("ASK", 2*time.Second)
	}},
	{34, "a call without an answer fails as unknown after a restart, and is not sent again", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.expect("ASK")
		p.close(1012, `{"code":"UNAVAILABLE","retryAfterMs":100,"message":"server is restarting"}`)
		s.lost(id)
		s.accept().refuse("ASK", 5*time.Second)
	}},
	{35, "duplicate and unknown answers are ignored", func(s *scenario) {
		p := s.open(clientOptions{})
		a, b := s.call(1), s.call(2)
		f := p.expectCall(1)
		p.answer(f)
		p.answer(f)
		p.reject(f, "INTERNAL")
		p.send("ANSWER", map[string]any{"correlationId": "unknown"}, nil)
		s.succeeded(a)
		p.answer(p.expectCall(2))
		s.succeeded(b)
	}},
	{36, "every attempt has an ID of its own", func(s *scenario) {
		seen := map[string]bool{}
		p := s.open(clientOptions{})
		for i := range 6 {
			if i == 3 {
				p.cut()
				p = s.reopened()
			}
			id := s.call(i)
			f := p.expectN("ASK", i)
			require.False(s, seen[f.Meta.ID])
			require.LessOrEqual(s, len(f.Meta.ID), 128)
			require.NotContains(s, f.Meta.ID, "$ws:")
			seen[f.Meta.ID] = true
			p.answer(f)
			s.succeeded(id)
		}
	}},
	{37, "a canceled call is aborted once", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		f := p.expect("ASK")
		s.abort(id)
		s.failed(id, "CANCELLED")
		require.Equal(s, f.Meta.ID, p.expect("$ws:abort").Meta.ID)
		s.abort(id)
		p.reject(f, "CANCELLED")
		p.refuse("$ws:abort", time.Second)
	}},
	{38, "a call that is canceled while it waits is not sent", func(s *scenario) {
		s.handshakeAfter(time.Second)
		s.create(clientOptions{})
		s.connect()
		id := s.call(1)
		s.abort(id)
		s.failed(id, "CANCELLED")
		p := s.accept()
		p.refuse("ASK", time.Second)
		p.refuse("$ws:abort", 0)
	}},
	{39, "a call that is canceled after its answer is not aborted", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.answer(p.expect("ASK"))
		s.succeeded(id)
		s.abort(id)
		p.refuse("$ws:abort", time.Second)
	}},
	{40, "a message that cannot be decoded has no effect", func(s *scenario) {
		p := s.open(clientOptions{})
		for _, text := range []string{`{`, `[]`, `{"type":1}`, `{"meta":{}}`, `null`, `{"type":"$ws:position","meta":{}}`, `{"type":"$ws:unheard-of","meta":{},"payload":{}}`} {
			p.sendRaw(text)
		}
		id := s.call(1)
		p.answer(p.expect("ASK"))
		s.succeeded(id)
		s.noDial(time.Second)
	}},
}

// expectCall returns the call with a number. Calls that start at the same time are sent in any order.
func (p *peer) expectCall(n int) *frame {
	p.server.t.Helper()
	f, ok := p.frames.take(func(f *frame) bool { return f.Type == "ASK" && f.Payload.N == n }, p.server.clock.limit)
	require.True(p.server.t, ok, "the client has not sent ASK %d", n)
	return f
}

var servedScenarios = []entry{
	{41, "a call of the server is answered", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{N: 7}, 0)
		f := p.expect("CONFIRMED")
		require.Equal(s, "$ws:1", f.Meta.ID)
		require.Equal(s, 7, f.Payload.N)
	}},
	{42, "the error of a handler reaches the server, but no other text", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{Do: "fail"}, 0)
		f := p.expect("RPC_ERROR")
		require.Equal(s, "PERMISSION_DENIED", f.Payload.Code)
		require.Equal(s, "the user said no", f.Payload.Message)
		p.ask("$ws:2", confirm{Do: "throw"}, 0)
		f = p.expect("RPC_ERROR")
		require.Equal(s, "INTERNAL", f.Payload.Code)
		require.NotContains(s, f.Payload.Message, "secret")
	}},
	{43, "a call of an unknown type is rejected", func(s *scenario) {
		p := s.open(clientOptions{})
		p.send("UNHEARD_OF", map[string]any{"correlationId": "$ws:1"}, nil)
		require.Equal(s, "UNIMPLEMENTED", p.expect("RPC_ERROR").Payload.Code)
	}},
	{44, "the server cancels a call", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{N: 7, Do: "wait"}, 0)
		s.event("served", nil)
		p.send("$ws:abort", map[string]any{"correlationId": "$ws:1"}, nil)
		s.event("served-ended", nil)
		p.refuse("CONFIRMED", time.Second)
		p.refuse("RPC_ERROR", 0)
	}},
	{45, "a call of the server ends at its deadline", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{N: 7, Do: "wait"}, 2000)
		from := s.event("served", nil)
		to := s.event("served-ended", nil)
		assert.InDelta(s, 2, s.clock.between(from.At, to.At).Seconds(), 1)
	}},
	{46, "a call of the server ends with its connection", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{N: 7, Do: "wait"}, 0)
		s.event("served", nil)
		p.cut()
		s.event("served-ended", nil)
		p = s.reopened()
		p.refuse("CONFIRMED", time.Second)
		p.refuse("RPC_ERROR", 0)
	}},
	{47, "calls of the server are bounded", func(s *scenario) {
		p := s.open(clientOptions{})
		for i := range 65 {
			p.ask("$ws:"+string(rune('0'+i)), confirm{N: i, Do: "wait"}, 0)
		}
		require.Equal(s, "RESOURCE_EXHAUSTED", p.expect("RPC_ERROR").Payload.Code)
		p.refuse("RPC_ERROR", time.Second)
	}},
	{105, "calls of two connections may have the same ID", func(s *scenario) {
		p := s.open(clientOptions{})
		p.ask("$ws:1", confirm{N: 1, Do: "slow"}, 0)
		s.event("served", nil)
		p.cut()
		p = s.reopened()
		p.ask("$ws:1", confirm{N: 2, Do: "slow"}, 0)
		s.event("served", nil)
		require.Equal(s, 2, p.expect("CONFIRMED").Payload.N)
		p.refuse("CONFIRMED", 2*time.Second)
	}},
}

// ask sends a call of the server.
func (p *peer) ask(id string, q confirm, timeoutMs int) {
	meta := map[string]any{"correlationId": id}
	if timeoutMs > 0 {
		meta["timeoutMs"] = timeoutMs
	}
	p.send("CONFIRM", meta, q)
}

var streamScenarios = []entry{
	{48, "items arrive in order, and then the end", func(s *scenario) {
		p, id, f := s.openStream(3)
		for n := range 3 {
			p.item(f, n)
		}
		p.reply(f, "$ws:stream-end", nil)
		s.items(id, 3)
		s.succeeded(id)
	}},
	{49, "the end follows all items even if the connection closes", func(s *scenario) {
		p, id, f := s.openStream(10)
		for n := range 10 {
			p.item(f, n)
		}
		p.reply(f, "$ws:stream-end", nil)
		p.close(1001, "")
		s.items(id, 10)
		s.succeeded(id)
	}},
	{50, "a stream that is not consumed grants nothing", func(s *scenario) {
		p, id, f := s.openStream(1)
		require.NotNil(s, f.Meta.Credit)
		credit := *f.Meta.Credit
		require.Positive(s, credit)
		for n := range credit {
			p.item(f, n)
		}
		require.Equal(s, 0, s.item(id))
		p.refuse("$ws:credit", time.Second)
		for n := range credit - 1 {
			s.nextItem(id)
			require.Equal(s, n+1, s.item(id))
		}
		s.nextItem(id)
		granted := 0
		for granted < credit/2 {
			grant := p.expect("$ws:credit")
			require.Equal(s, f.Meta.ID, grant.Meta.ID)
			granted += *grant.Meta.Credit
		}
		require.LessOrEqual(s, granted, credit)
		p.reply(f, "$ws:stream-end", nil)
	}},
	{51, "leaving the loop aborts the stream once", func(s *scenario) {
		p, id, f := s.openStream(1)
		p.item(f, 0)
		s.item(id)
		s.breakLoop(id)
		s.succeeded(id)
		require.Equal(s, f.Meta.ID, p.expect("$ws:abort").Meta.ID)
		p.item(f, 1)
		p.reject(f, "CANCELLED")
		p.refuse("$ws:abort", time.Second)
	}},
	{52, "a stream that was not begun sends nothing", func(s *scenario) {
		p := s.open(clientOptions{})
		s.stream(1)
		p.refuse("EXPORT", time.Second)
	}},
	{53, "a lost connection ends a stream as unknown, after its items", func(s *scenario) {
		p, id, f := s.openStream(3)
		for n := range 3 {
			p.item(f, n)
		}
		require.Equal(s, 0, s.item(id))
		p.cut()
		s.event("state", func(e event) bool { return e.State == "waiting" })
		s.nextItem(id)
		require.Equal(s, 1, s.item(id))
		s.nextItem(id)
		require.Equal(s, 2, s.item(id))
		s.nextItem(id)
		s.lost(id)
		s.reopened().refuse("EXPORT", time.Second)
	}},
	{54, "an error ends a stream after its items", func(s *scenario) {
		p, id, f := s.openStream(2)
		p.item(f, 0)
		p.item(f, 1)
		p.reject(f, "UNAVAILABLE", "retryable", true)
		s.items(id, 2)
		s.failed(id, "UNAVAILABLE")
	}},
	{55, "a canceled stream ends and is aborted", func(s *scenario) {
		p, id, f := s.openStream(2)
		s.abort(id)
		s.failed(id, "CANCELLED")
		require.Equal(s, f.Meta.ID, p.expect("$ws:abort").Meta.ID)
		p.reject(f, "CANCELLED")
	}},
}

// openStream begins a stream on a new client, and asks for its first item.
func (s *scenario) openStream(n int) (p *peer, id string, f *frame) {
	s.Helper()
	p = s.open(clientOptions{})
	id = s.stream(n)
	s.nextItem(id)
	return p, id, p.expect("EXPORT")
}

// item returns the item that was asked for.
func (s *scenario) item(id string) int {
	s.Helper()
	return s.event("item", func(e event) bool { return e.ID == id }).N
}

// items expects items, of which the first was asked for, and asks for what follows.
func (s *scenario) items(id string, count int) {
	s.Helper()
	for n := range count {
		require.Equal(s, n, s.item(id))
		s.nextItem(id)
	}
}

// item sends an item of a stream.
func (p *peer) item(f *frame, n int) {
	p.reply(f, "$ws:rpc-progress", row{n})
}
