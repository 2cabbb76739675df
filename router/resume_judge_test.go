package router_test

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// judge compares the answer with what the model says.
func (m *resumeModel) judge(s *modelSession, c *modelClient, token, user string) {
	valid := token == s.current || token == s.previous
	age := time.Duration(0)
	if !s.lost.IsZero() {
		age = time.Since(s.lost)
	}
	got, code := m.answer(c)
	c.token = got
	m.t.Logf("%v resumes on node %d: %q; valid %v, doubt %v, ended %v, age %v", s, c.node, code, valid, s.doubt, s.ended, age)
	switch {
	case !m.works(c.node):
		require.Equal(m.t, errors.Unavailable, code)
		return
	case !valid && !s.doubt:
		require.Equal(m.t, errors.NotFound, code, "a token that is not valid")
		m.rejected++
	case !s.doubt && (s.ended || age >= resumeWithin):
		require.Equal(m.t, errors.NotFound, code, "the session has ended, or the time is up")
		m.rejected++
	case user != s.user:
		require.Contains(m.t, []errors.Code{errors.PermissionDenied, errors.NotFound}, code)
		m.rejected++
	case s.doubt:
		m.doubtful++
	default:
		require.Empty(m.t, code, "a valid token")
	}
	if code == "" {
		m.accepted++
		m.move(s, c, token)
	} else if code == errors.NotFound && s.doubt && valid {
		s.ended, s.doubt = true, false
	}
}

// move records that a connection has resumed a session with a token. The client may not have received
// the answer.
func (m *resumeModel) move(s *modelSession, c *modelClient, token string) {
	if token != s.current {
		s.used = append(s.used, s.current)
	}
	if s.previous != "" && token != s.previous {
		s.used = append(s.used, s.previous)
	}
	s.current, s.previous, s.owner, s.lost = c.token, token, c, time.Time{}
	s.ended, s.doubt, s.expired = false, false, false
	c.session, c.ack = s, fmt.Sprintf("r%d", c.calls)
	m.clients = append(m.clients, c)
}

// resumeTwice presents a token on two connections at once.
func (m *resumeModel) resumeTwice() {
	s, token := m.pick()
	if s == nil || s.doubt || s.ended || token != s.current || !s.lost.IsZero() && time.Since(s.lost) >= resumeWithin {
		return
	}
	one, two := m.dial(s.user), m.dial(s.user)
	if !m.works(one.node) || !m.works(two.node) {
		return
	}
	m.concurrent++
	m.send(one, token)
	m.send(two, token)
	var codes []errors.Code
	for _, c := range []*modelClient{one, two} {
		got, code := m.answer(c)
		c.token = got
		codes = append(codes, code)
	}
	m.t.Logf("%v resumes on nodes %d and %d: %q", s, one.node, two.node, codes)
	require.Contains(m.t, codes, errors.Code(""))
	winner, loser := one, two
	// If both were accepted, one after the other, the second one supersedes the first.
	if codes[0] != "" || codes[1] == "" && router.SessionGeneration(two.conn) > router.SessionGeneration(one.conn) {
		winner, loser = two, one
	}
	m.move(s, winner, token)
	if loser.token != "" {
		s.used = append(s.used, loser.token)
		loser.session = s
		m.clients = append(m.clients, loser)
	}
}

// client returns a random connection with a session, and removes it if remove is set.
func (m *resumeModel) client(remove bool) *modelClient {
	if len(m.clients) == 0 {
		return nil
	}
	n := m.rng.IntN(len(m.clients))
	c := m.clients[n]
	if remove {
		m.clients[n] = m.clients[len(m.clients)-1]
		m.clients = m.clients[:len(m.clients)-1]
	}
	return c
}

// acknowledge confirms an answer. A connection that no longer has the session may do so, too.
func (m *resumeModel) acknowledge() {
	c := m.client(false)
	if c == nil || c.ack == "" || !m.isOpen(c) {
		return
	}
	c.SendText(fmt.Sprintf(`{"type":"$ws:ack","meta":{"correlationId":%q}}`, c.ack))
	synctest.Wait()
	c.ack = ""
	if s := c.session; s.owner == c && s.previous != "" {
		s.used, s.previous = append(s.used, s.previous), ""
		s.doubt = s.doubt || !m.works(c.node)
	}
}

// isOpen reports whether the server has the connection of a client.
func (m *resumeModel) isOpen(c *modelClient) bool { return m.nodes[c.node].Conn(c.conn.ID()) != nil }

// end ends a connection. The session ends with it only if the connection has it.
func (m *resumeModel) end() {
	c := m.client(true)
	if c == nil || !m.isOpen(c) {
		return
	}
	ends := true
	switch m.rng.IntN(8) {
	case 0:
		c.Close()
	case 1:
		c.conn.Close(4000, "")
	case 2:
		if s := c.session; s.user != "" && s.owner == c {
			_ = m.disconnect(c)
			return
		}
		return
	case 3:
		c.conn.Close(router.StatusServiceRestart, "")
		ends = false
	default:
		c.Abort()
		ends = false
	}
	synctest.Wait()
	m.t.Logf("a connection of %v ends; owner %v, ends the session %v", c.session, c.session.owner == c, ends)
	if s := c.session; s.owner == c {
		s.lost, s.ended = time.Now(), s.ended || ends
		s.doubt = s.doubt || !m.works(c.node)
	}
}

// disconnect disconnects the user of a connection from its own node.
func (m *resumeModel) disconnect(c *modelClient) error {
	m.t.Logf("%q is disconnected", c.session.user)
	_, err := m.nodes[c.node].DisconnectUser("t", c.session.user, 1012, "")
	synctest.Wait()
	for _, s := range m.sessions {
		o := s.owner
		switch {
		case s.user != c.session.user || s.user == "":
		case !s.lost.IsZero(), m.isOpen(o): // its client is away, or its node has missed the packet
			s.ended = s.ended || err == nil
		default:
			s.lost, s.ended = time.Now(), true
			s.doubt = s.doubt || err != nil && !m.works(o.node)
		}
	}
	return err
}

// String describes the session for the log of a failed test.
func (s *modelSession) String() string {
	return fmt.Sprintf("session %s of %q on node %d", s.current[:4], s.user, s.owner.node)
}
