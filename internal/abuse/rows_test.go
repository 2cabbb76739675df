//go:build unix && !race

package abuse_test

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// A row is what one kind of client does.
type row struct {
	name    string
	ceiling cost
	prepare func(*scene) (attack func()) // what prepare does is not counted
}

// A scene is the server and the attacker of one row.
type scene struct {
	*attacker

	router *router.Router
}

// repeat returns an attack that sends n messages, which may contain the number of the message. Some are
// sent before, so that goroutines and scripts exist.
func repeat(n int, format string) func(*scene) func() {
	return func(s *scene) func() {
		p := s.connect("eve")
		send := func(first, beyond int) {
			for i := first; i < beyond; i++ {
				p.add(numbered(format, i))
				if i%50 == 49 || i == beyond-1 { // fewer than Limits.Concurrency
					p.finish()
				}
			}
		}
		send(n, n+50)
		return func() { send(0, n) }
	}
}

// numbered replaces # by a number.
func numbered(format string, n int) string { return strings.ReplaceAll(format, "#", fmt.Sprint(n)) }

// withFullHistory is prepare for a topic that has retained all that it can.
func withFullHistory(prepare func(*scene) func()) func(*scene) func() {
	return func(s *scene) func() {
		fill(s.t, s.router)
		return prepare(s)
	}
}

// rejoin subscribes to a topic and leaves it n times.
func rejoin(n int, subscribe string) func(*scene) func() {
	return func(s *scene) func() {
		p := s.connect("eve")
		return func() {
			for range n {
				p.add(subscribe, `{"type":"$ws:unsubscribe","payload":{"topic":"history/full"}}`)
				p.finish()
			}
		}
	}
}

// grants is how many topics the session of the user "granted" has.
const grants = 100

var rows = []row{
	{name: "handshake, accepted", ceiling: cost{25, 5, 1.5, 40, 0.01, 1}, prepare: func(s *scene) func() {
		return func() {
			for range 200 {
				s.connect("")
			}
		}
	}},
	{name: "handshake, rejected", ceiling: cost{10, 5, 2, 40, 0.01, 1}, prepare: func(s *scene) func() {
		return func() {
			for range 200 {
				p := s.dial()
				p.pending = handshake("wrong")
				p.awaitEnd()
			}
		}
	}},
	{name: "event", ceiling: cost{1, 5, 0.1, 3, 0.001, 0.1}, prepare: repeat(5000, `{"type":"EVENT"}`)},
	{name: "invalid payload", ceiling: cost{3, 5, 8, 12, 0.001, 0.1}, prepare: repeat(1000, `{"type":"CHECKED","payload":{}}`)},
	{name: "unknown type", ceiling: cost{5, 5, 12, 12, 0.001, 0.1}, prepare: repeat(1000, `{"type":"A"}`)},
	{name: "invalid JSON", ceiling: cost{10, 5, 40, 40, 0.002, 0.2}, prepare: repeat(1000, `{`)},
	{name: "too long", ceiling: cost{0.1, 0.1, 0.01, 0.2, 0.001, 0.1}, prepare: repeat(20, `{"type":"EVENT","payload":"`+strings.Repeat("x", 64<<10)+`"}`)},
	{name: "incomplete", ceiling: cost{4, 0.1, 0.01, 0.3, 0.001, 0.1}, prepare: func(s *scene) func() {
		peers := make([]*peer, 50)
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				p.addFrame(0x01, `{"type":"EVENT","payload":"`+strings.Repeat("x", 32<<10)) // without FIN
				p.addFrame(0x89, "last")                                                    // a ping
				p.await("last", 1)
			}
		}
	}},
	{name: "ping", ceiling: cost{5, 10, 1, 25, 0.01, 1}, prepare: func(s *scene) func() {
		peers := make([]*peer, 20) // one sends so little that the stack of another goroutine would count
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				for range 50 {
					p.addFrame(0x89, "x")
				}
				p.finish()
			}
		}
	}},
	{name: "`__heartbeat`", ceiling: cost{2, 5, 3, 2, 0.001, 0.1}, prepare: repeat(1000, `{"type":"__heartbeat"}`)},
	{name: "call", ceiling: cost{1, 5, 4, 4, 0.001, 0.1}, prepare: repeat(1000, `{"type":"LAST","meta":{"correlationId":"#"}}`)},
	{name: "call that does not return", ceiling: cost{250, 5, 0.1, 10, 0.001, 0.1}, prepare: func(s *scene) func() {
		peers := make([]*peer, 20)
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				for i := range 63 {
					p.add(numbered(`{"type":"WAIT","meta":{"correlationId":"#"}}`, i))
				}
				p.finish()
			}
		}
	}},
	{name: "call, then `$ws:abort`", ceiling: cost{10, 5, 3, 6, 0.001, 0.1}, prepare: func(s *scene) func() {
		p := s.connect("eve")
		return func() {
			for range 20 {
				for i := range 50 {
					p.add(numbered(`{"type":"WAIT","meta":{"correlationId":"#"}}`, i))
				}
				for i := range 50 {
					p.add(numbered(`{"type":"$ws:abort","meta":{"correlationId":"#"}}`, i))
				}
				p.await(`"RPC_ERROR"`, 50) // CANCELLED, or RESOURCE_EXHAUSTED while handlers return
			}
		}
	}},
	{name: "`$ws:abort` of no call", ceiling: cost{1, 5, 0.1, 1, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:abort","meta":{"correlationId":"a"}}`)},
	{name: "stream without credits", ceiling: cost{150, 5, 0.1, 10, 0.001, 0.1}, prepare: func(s *scene) func() {
		peers := make([]*peer, 20)
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				for i := range 63 {
					p.add(numbered(`{"type":"ROWS","meta":{"correlationId":"#","credit":0}}`, i))
				}
				p.finish()
			}
		}
	}},
	{name: "`$ws:credit` for no stream", ceiling: cost{1, 5, 0.1, 1, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:credit","meta":{"correlationId":"a","credit":1}}`)},
	{name: "answer to no call (`$ws:answer`)", ceiling: cost{1, 5, 0.1, 1, 0.001, 0.1}, prepare: repeat(1000, `{"type":"A","meta":{"correlationId":"$ws:1"}}`)},
	{name: "`$ws:hello`", ceiling: cost{3, 5, 15, 6, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:hello"}`)},
	{name: "`$ws:hello` for a session", ceiling: cost{20, 40, 8, 80, 0.15, 10}, prepare: func(s *scene) func() {
		peers := make([]*peer, 100)
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				p.add(`{"type":"$ws:hello","payload":{"session":true}}`)
				p.finish()
			}
		}
	}},
	{name: "`$ws:resume`, unknown token", ceiling: cost{1, 2, 4, 30, 0.06, 3}, prepare: repeat(1000, `{"type":"$ws:resume","payload":{"token":"AAAAAAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAA"}}`)},
	{name: fmt.Sprintf("`$ws:resume` of %d topics, and its handshake", grants), ceiling: cost{80, 30, 12, 150, 0.1, 35}, prepare: resume},
	{name: "`$ws:ack` of no resume", ceiling: cost{1, 5, 0.1, 1, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:ack","meta":{"correlationId":"a"}}`)},
	{name: "`$ws:auth`", ceiling: cost{1, 5, 5, 6, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:auth","payload":{"token":"eve"}}`)},
	{name: "`$ws:auth`, wrong token", ceiling: cost{20, 20, 5, 100, 0.01, 2}, prepare: func(s *scene) func() {
		peers := make([]*peer, 50) // each is answered after a second
		for i := range peers {
			peers[i] = s.connect("eve")
		}
		return func() {
			for _, p := range peers {
				p.add(`{"type":"$ws:auth","payload":{"token":"wrong"}}`)
				p.write()
			}
			for _, p := range peers {
				p.await(`"UNAUTHENTICATED"`, 1)
			}
		}
	}},
	{name: "`$ws:subscribe`, denied", ceiling: cost{1, 5, 5, 4, 0.001, 0.1}, prepare: repeat(900, `{"type":"$ws:subscribe","payload":{"topic":"closed/#"}}`)},
	{name: "`$ws:subscribe`, new topic", ceiling: cost{25, 5, 4, 10, 0.01, 4}, prepare: repeat(900, `{"type":"$ws:subscribe","payload":{"topic":"plain/#"}}`)},
	{name: "`$ws:subscribe`, new topic with a history", ceiling: cost{45, 10, 5, 70, 0.4, 25}, prepare: repeat(900, `{"type":"$ws:subscribe","payload":{"topic":"history/#","positions":true}}`)},
	{name: "`$ws:subscribe`, new topic with presence", ceiling: cost{60, 10, 5, 12, 0.04, 10}, prepare: repeat(900, `{"type":"$ws:subscribe","payload":{"topic":"members/#","presence":true}}`)},
	{name: fmt.Sprintf("`$ws:subscribe` to %d members, `$ws:unsubscribe`", members), ceiling: cost{25, 20, 100, 60, 0.05, 10}, prepare: func(s *scene) func() {
		for range members {
			p := s.connect("member")
			p.add(`{"type":"$ws:subscribe","payload":{"topic":"members/full"}}`)
			p.finish()
		}
		p := s.connect("eve")
		return func() {
			for range 20 {
				p.add(`{"type":"$ws:subscribe","payload":{"topic":"members/full","presence":true}}`, `{"type":"$ws:unsubscribe","payload":{"topic":"members/full"}}`)
				p.finish()
			}
		}
	}},
	{name: "`$ws:subscribe` after 500 publications, `$ws:unsubscribe`", ceiling: cost{25, 30, 1000, 300, 0.15, 1200}, prepare: withFullHistory(func(s *scene) func() {
		p := s.connect("eve")
		p.add(`{"type":"$ws:subscribe","payload":{"topic":"history/full","positions":true}}`)
		epoch := p.awaitEpoch()
		p.add(`{"type":"$ws:unsubscribe","payload":{"topic":"history/full"}}`)
		p.finish()
		return rejoin(20, `{"type":"$ws:subscribe","payload":{"topic":"history/full","offset":500,"epoch":"`+epoch+`"}}`)(s)
	})},
	{name: fmt.Sprintf("`$ws:subscribe` to a state of %d keys, `$ws:unsubscribe`", keys), ceiling: cost{25, 30, 500, 250, 0.3, 600}, prepare: withFullHistory(
		rejoin(20, `{"type":"$ws:subscribe","payload":{"topic":"history/full","state":true}}`))},
	{name: "`$ws:unsubscribe` of no topic", ceiling: cost{1, 5, 3, 4, 0.001, 0.1}, prepare: repeat(1000, `{"type":"$ws:unsubscribe","payload":{"topic":"plain/a"}}`)},
}

// resume resumes a session again and again, each time on another connection.
func resume(s *scene) func() {
	p := s.connect("granted")
	p.add(`{"type":"$ws:hello","payload":{"session":true}}`)
	token := p.awaitMatch(tokenMember)
	return func() {
		for range 20 {
			p = s.connect("granted")
			p.add(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":"` + token + `"}}`)
			token = p.awaitMatch(tokenMember)
			p.finish()
		}
	}
}

var tokenMember, epochMember = regexp.MustCompile(`"token":"([^"]+)"`), regexp.MustCompile(`"epoch":"([^"]+)"`)

func (p *peer) awaitEpoch() string { return p.awaitMatch(epochMember) }

// awaitMatch returns what the group of an expression matches in the next answer, of at most 16 KiB.
func (p *peer) awaitMatch(expression *regexp.Regexp) string {
	p.write()
	var text []byte
	for {
		n, err := p.conn.Read(p.buffer[:])
		require.NoError(p.t, err, "%s does not occur in %q", expression, text)
		p.received += n
		text = append(text, p.buffer[:n]...)
		if match := expression.FindSubmatch(text); match != nil {
			return string(match[1])
		}
	}
}
