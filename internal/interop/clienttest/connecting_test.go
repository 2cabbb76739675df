package clienttest_test

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var connectingScenarios = []entry{
	{1, "connects when it is used", func(s *scenario) {
		s.create(clientOptions{})
		s.noDial(2 * time.Second)
		id := s.call(1)
		p := s.accept()
		p.answer(p.expectN("ASK", 1))
		require.Equal(s, 1, s.succeeded(id).N)
	}},
	{2, "connects once", func(s *scenario) {
		s.create(clientOptions{})
		a, b := s.connect(), s.connect()
		p := s.accept()
		s.succeeded(a)
		s.succeeded(b)
		s.succeeded(s.connect())
		p.expect("$ws:hello")
		s.noDial(3 * time.Second)
	}},
	{3, "reports its states in order", func(s *scenario) {
		s.open(clientOptions{}).cut()
		s.accept()
		for _, name := range []string{"connecting", "open", "waiting", "connecting", "open"} {
			require.Equal(s, name, s.event("state", nil).State)
		}
	}},
	{4, "a handshake without response ends after 10 s", func(s *scenario) {
		first := true
		s.handshake = func(_ http.ResponseWriter, req *http.Request) bool {
			if first {
				first = false
				<-req.Context().Done()
				return true
			}
			return false
		}
		s.create(clientOptions{})
		id := s.connect()
		s.accept()
		s.succeeded(id)
		a, _ := s.dials.take(func(time.Time) bool { return true }, 0)
		b, _ := s.dials.take(func(time.Time) bool { return true }, 0)
		assert.Greater(s, s.clock.between(a, b), 5*time.Second)
		assert.Less(s, s.clock.between(a, b), 40*time.Second)
	}},
	{5, "a greeting without answer ends the attempt after 10 s", func(s *scenario) {
		s.manual.Store(true)
		s.create(clientOptions{})
		id := s.connect()
		first := s.accept()
		first.expect("$ws:hello")
		s.manual.Store(false)
		s.accept()
		s.succeeded(id)
		first.await()
	}},
	{6, "a token request that hangs ends the attempt after 10 s", func(s *scenario) {
		s.create(clientOptions{Tokens: []string{"!hang", "good"}})
		id := s.connect()
		start := s.event("token", nil)
		require.Equal(s, "good", s.accept().token)
		s.succeeded(id)
		again := s.event("token", nil)
		assert.Greater(s, s.clock.between(start.At, again.At), 9*time.Second)
		assert.Less(s, s.clock.between(start.At, again.At), 40*time.Second)
	}},
	{7, "a token request that fails is a failed attempt", func(s *scenario) {
		s.create(clientOptions{Tokens: []string{"!fail", "!fail", "good"}})
		id := s.connect()
		require.Equal(s, "good", s.accept().token)
		s.succeeded(id)
	}},
	{8, "one token for each attempt", func(s *scenario) {
		p := s.open(clientOptions{Tokens: []string{"a", "b", "c"}})
		require.Equal(s, "a", p.token)
		for _, token := range []string{"b", "c"} {
			p.cut()
			p = s.accept()
			require.Equal(s, token, p.token)
			s.state("open")
		}
		for range 3 {
			require.False(s, s.event("token", nil).Expired)
		}
		s.none("token", time.Second)
	}},
	{9, "a refused connection is tried again after a random delay", func(s *scenario) {
		rejected := 0
		s.handshake = func(w http.ResponseWriter, _ *http.Request) bool {
			if rejected++; rejected <= 5 {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return false
		}
		s.create(clientOptions{})
		id := s.connect()
		s.accept()
		s.succeeded(id)
		dials, upper := s.dials.all(), 500*time.Millisecond
		for i := range dials[1:] {
			delay := s.clock.between(dials[i], dials[i+1])
			assert.GreaterOrEqual(s, delay, 90*time.Millisecond)
			assert.Less(s, delay, upper+5*time.Second)
			upper *= 2
		}
	}},
	{10, "a server that accepts and closes is not asked without delay", func(s *scenario) {
		s.create(clientOptions{})
		s.connect()
		for range 13 {
			s.reopened().cut()
		}
		dials := s.dials.all()
		// Without growth, 12 delays are at most 12 × 0.6 s.
		assert.Greater(s, s.clock.between(dials[0], dials[12]), 7500*time.Millisecond)
	}},
	{11, "the delay begins again after a connection of 5 s", func(s *scenario) {
		s.create(clientOptions{})
		s.connect()
		for range 7 {
			s.accept().cut()
		}
		p := s.reopened()
		s.clock.sleep(6 * time.Second)
		p.cut()
		cut := time.Now()
		s.accept()
		assert.Less(s, s.clock.since(cut), 6*time.Second)
	}},
	{12, "a silent connection is probed and kept", func(s *scenario) {
		p := s.open(clientOptions{})
		s.clock.sleep(40 * time.Second)
		p.answer(p.askedBy(s, 1))
		s.noDial(time.Second)
	}},
	{13, "a connection that does not answer the probe is replaced", func(s *scenario) {
		p := s.open(clientOptions{})
		p.mute()
		start := time.Now()
		s.accept()
		assert.Greater(s, s.clock.since(start), 30*time.Second)
		assert.Less(s, s.clock.since(start), 90*time.Second)
		s.state("open")
		p.cut() // of the other connection, the client has only begun the close handshake
	}},
	{14, "the late end of a replaced connection has no effect", func(s *scenario) {
		old := s.open(clientOptions{})
		old.mute()
		p := s.reopened()
		id := s.call(1)
		f := p.expectN("ASK", 1)
		old.cut()
		s.noDial(2 * time.Second)
		p.answer(f)
		s.succeeded(id)
	}},
	{15, "a server that does not know the greeting is used", func(s *scenario) {
		s.manual.Store(true)
		s.create(clientOptions{})
		id := s.connect()
		p := s.accept()
		p.reject(p.expect("$ws:hello"), "UNIMPLEMENTED")
		s.succeeded(id)
		p.answer(p.askedBy(s, 1))
	}},
}

// askedBy makes the client send a call, and returns it.
func (p *peer) askedBy(s *scenario, n int) *frame {
	s.Helper()
	s.call(n)
	return p.expectN("ASK", n)
}

var closeCodeScenarios = []entry{
	{16, "the client connects again after codes that do not stop it", func(s *scenario) {
		p := s.open(clientOptions{})
		for _, code := range []int{1000, 1001, 1011, 1008, 4000, 4500, 4999} {
			p.close(code, "bye")
			p = s.accept()
			s.state("open")
		}
	}},
	{17, "4403 stops the client", func(s *scenario) {
		p := s.open(clientOptions{})
		a := s.call(1)
		p.expect("ASK")
		p.close(4403, `{"code":"PERMISSION_DENIED","message":"not you"}`)
		s.settled(a)
		s.state("closed")
		require.NotEmpty(s, s.settled(s.call(2)).Code)
		s.noDial(25 * time.Second)
	}},
	{18, "4401 asks for another token once", func(s *scenario) {
		p := s.open(clientOptions{Tokens: []string{"old", "new"}})
		require.False(s, s.event("token", nil).Expired)
		p.close(4401, `{"code":"UNAUTHENTICATED","message":"the identity has expired"}`)
		require.Equal(s, "new", s.reopened().token)
		require.True(s, s.event("token", nil).Expired)
	}},
	{19, "4401 for the new token stops the client", func(s *scenario) {
		s.handshake = func(w http.ResponseWriter, req *http.Request) bool { return s.rejectAfterUpgrade(w, req, 4401) }
		s.create(clientOptions{Tokens: []string{"old"}})
		id := s.connect()
		s.failed(id, "UNAUTHENTICATED")
		s.state("closed")
		require.False(s, s.event("token", nil).Expired)
		require.True(s, s.event("token", nil).Expired)
		s.none("token", 20*time.Second)
	}},
	{107, "4401 right after the greeting stops the client at the second time", func(s *scenario) {
		s.open(clientOptions{Tokens: []string{"old"}}).close(4401, "")
		s.state("open")
		s.reopened().close(4401, "")
		s.state("closed")
		s.noDial(20 * time.Second)
	}},
	{20, "a protocol violation stops the client at the second time", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1002, "")
		p = s.reopened()
		p.close(1007, "")
		s.state("closed")
		s.noDial(25 * time.Second)
	}},
	{21, "the delay of a restart is obeyed", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1012, `{"code":"UNAVAILABLE","retryAfterMs":4000,"message":"server is restarting"}`)
		s.returnsWithin(4*time.Second, 8*time.Second)
	}},
	{22, "clients return from a restart at random times", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1012, "")
		s.returnsWithin(0, 12*time.Second)
	}},
	{23, "clients return to an overloaded server after a longer delay", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1013, "")
		s.returnsWithin(100*time.Millisecond, 12*time.Second)
	}},
	{24, "the delay of a limit is obeyed", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(4429, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":9000,"message":"too many connections"}`)
		s.returnsWithin(9*time.Second, 14*time.Second)
	}},
	{143, "null for a connection stops the client", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(4429, `{"code":"FAILED_PRECONDITION","retryAfterMs":null,"message":"no more connections"}`)
		s.state("closed")
		s.noDial(25 * time.Second)
	}},
	{144, "null for a message does not stop the client", func(s *scenario) {
		p := s.open(clientOptions{})
		p.close(1013, `{"code":"FAILED_PRECONDITION","retryAfterMs":null,"message":"the message costs too much"}`)
		s.returnsWithin(100*time.Millisecond, 12*time.Second)
	}},
	{145, "short delays of the server do not replace the backoff", func(s *scenario) {
		p := s.open(clientOptions{})
		for range 4 {
			start := time.Now()
			p.close(1012, `{"code":"UNAVAILABLE","retryAfterMs":1}`)
			p = s.accept()
			assert.GreaterOrEqual(s, s.clock.since(start), 100*time.Millisecond)
		}
	}},
	{25, "goaway moves to another connection and finishes the calls", func(s *scenario) {
		old := s.open(clientOptions{})
		a := s.call(1)
		f := old.expectN("ASK", 1)
		old.send("$ws:goaway", nil, map[string]int{"reconnectAfterMs": 300})
		p := s.accept()
		old.answer(f)
		require.Equal(s, 1, s.succeeded(a).N)
		old.await()
		b := s.call(2)
		p.answer(p.expectN("ASK", 2))
		s.succeeded(b)
		s.noDial(3 * time.Second)
	}},
	{26, "a connection that ends before the goaway delay is replaced", func(s *scenario) {
		old := s.open(clientOptions{})
		old.send("$ws:goaway", nil, map[string]int{"reconnectAfterMs": 500})
		old.close(1012, `{"code":"UNAVAILABLE","retryAfterMs":100}`)
		p := s.accept()
		b := s.call(2)
		p.answer(p.expectN("ASK", 2))
		s.succeeded(b)
	}},
	{27, "a message that is too large is not sent again", func(s *scenario) {
		p := s.open(clientOptions{})
		id := s.call(1)
		p.expectN("ASK", 1)
		p.close(1009, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"message is too big"}`)
		s.lost(id)
		s.reopened().refuse("ASK", time.Second)
	}},
}

// returnsWithin expects that the client connects again after a delay.
func (s *scenario) returnsWithin(from, to time.Duration) {
	s.Helper()
	start := time.Now()
	s.accept()
	assert.GreaterOrEqual(s, s.clock.since(start), from)
	assert.Less(s, s.clock.since(start), to)
}
