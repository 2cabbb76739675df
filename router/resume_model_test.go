package router_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// This file compares sessions on nodes that fail with a model: which tokens are valid, and for whom.

// A modelSession is what the model knows about a session.
type modelSession struct {
	user     string
	current  string
	previous string       // valid as well; "" if there is none
	used     []string     // invalid
	owner    *modelClient // the connection that has the session
	lost     time.Time    // when the owner has lost its connection; zero while it is open
	ended    bool
	expired  bool // the record may have expired
	doubt    bool // the store has not confirmed the last change: both outcomes are legitimate
}

type modelClient struct {
	*sessionClient

	node    int
	session *modelSession
	ack     string // the ID of $ws:resume that has not been acknowledged
}

type resumeModel struct {
	t        *testing.T
	rng      *rand.Rand
	nodes    []*router.Router
	cuts     []*cutBroker
	away     []time.Time // since when the store of a node is away; zero if it is not
	users    []string
	sessions []*modelSession
	clients  []*modelClient // whose connections are open, as far as the client knows

	accepted, rejected, concurrent, doubtful int
}

// TestResume_OnlyOwnersOfValidTokensSucceed interleaves greetings, resumes with all kinds of tokens,
// lost answers, acknowledgments, closed and lost connections, crashed nodes, lost packets, and time.
func TestResume_OnlyOwnersOfValidTokensSucceed(t *testing.T) {
	seeds, steps := uint64(20), 250
	if testing.Short() {
		seeds = 5
	}
	var total resumeModel
	for seed := range seeds {
		runSynctest(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newResumeModel(t, seed)
			for range steps {
				m.step()
			}
			total.accepted += m.accepted
			total.rejected += m.rejected
			total.concurrent += m.concurrent
			total.doubtful += m.doubtful
		})
	}
	t.Logf("%d resumes accepted, %d rejected, %d concurrent, %d in doubt", total.accepted, total.rejected, total.concurrent, total.doubtful)
	assert.Greater(t, total.accepted, int(seeds)*20)
	assert.Greater(t, total.rejected, int(seeds)*20)
	assert.Greater(t, total.concurrent, int(seeds))
	assert.Less(t, total.doubtful, total.accepted/4)
}

func newResumeModel(t *testing.T, seed uint64) *resumeModel {
	m := &resumeModel{t: t, rng: rand.New(rand.NewPCG(seed, 11)), users: []string{"ann", "bob", ""}}
	shared := memory.NewBroker()
	for range 3 {
		cut := &cutBroker{Broker: shared}
		m.cuts, m.away = append(m.cuts, cut), append(m.away, time.Time{})
		m.nodes = append(m.nodes, newSessionRouter(cut, nil))
	}
	return m
}

func (m *resumeModel) step() {
	switch n := m.rng.IntN(100); {
	case n < 12:
		m.open()
	case n < 52:
		m.resume()
	case n < 60:
		m.resumeTwice()
	case n < 70:
		m.acknowledge()
	case n < 82:
		m.end()
	case n < 85:
		m.cutOff()
	case n < 95:
		time.Sleep(time.Duration(m.rng.IntN(int(20 * time.Second))))
	default:
		time.Sleep(time.Duration(m.rng.IntN(int(resumeWithin * 3 / 2))))
	}
	synctest.Wait()
	m.repair()
}

// repair ends the cuts, sometimes at once and sometimes after a while.
func (m *resumeModel) repair() {
	for n, cut := range m.cuts {
		if m.rng.IntN(4) > 0 {
			continue
		}
		cut.silent.Store(false)
		if cut.store.Swap(storeWorks) == storeAway {
			m.markExpired()
			m.t.Logf("the store of node %d returns after %v", n, time.Since(m.away[n]))
			m.away[n] = time.Time{}
			time.Sleep(8 * time.Second) // what has failed is repeated
			synctest.Wait()
			for _, s := range m.sessions {
				if s.owner.node == n && !s.expired {
					s.doubt = false
				}
			}
		}
	}
}

func (m *resumeModel) cutOff() {
	n := m.rng.IntN(len(m.cuts))
	if m.rng.IntN(2) == 0 {
		m.cuts[n].silent.Store(true)
		m.t.Logf("node %d loses packets", n)
	} else if m.works(n) {
		m.cuts[n].store.Store(storeAway)
		m.away[n] = time.Now()
		m.t.Logf("the store of node %d is away", n)
	}
}

// markExpired marks the sessions whose records may have expired because their node could not store
// them again.
func (m *resumeModel) markExpired() {
	for _, s := range m.sessions {
		if since := m.away[s.owner.node]; !since.IsZero() && time.Since(since) >= resumeWithin {
			s.doubt, s.expired = true, true
		}
	}
}

func (m *resumeModel) dial(user string) *modelClient {
	node := m.rng.IntN(len(m.nodes))
	return &modelClient{sessionClient: dialSession(m.t, m.nodes[node], user), node: node}
}

func (m *resumeModel) works(node int) bool { return m.cuts[node].store.Load() == storeWorks }

// open opens a session.
func (m *resumeModel) open() {
	user := m.users[m.rng.IntN(len(m.users))]
	c := m.dial(user)
	if !m.works(c.node) {
		return
	}
	c.hello()
	s := &modelSession{user: user, current: c.token, owner: c}
	c.session = s
	m.sessions = append(m.sessions, s)
	m.clients = append(m.clients, c)
}

// pick returns a session, and a token that was once valid for it or is like one.
func (m *resumeModel) pick() (s *modelSession, token string) {
	if len(m.sessions) == 0 {
		m.open()
	}
	if len(m.sessions) == 0 {
		return nil, ""
	}
	m.markExpired()
	s = m.sessions[len(m.sessions)-1-m.rng.IntN(min(4, len(m.sessions)))]
	switch n := m.rng.IntN(10); {
	case n < 5:
		return s, s.current
	case n < 7 && s.previous != "":
		return s, s.previous
	case n < 9 && len(s.used) > 0:
		return s, s.used[m.rng.IntN(len(s.used))]
	default:
		return s, s.current[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	}
}

// resume presents a token, and compares the answer with the model.
func (m *resumeModel) resume() {
	s, token := m.pick()
	if s == nil {
		return
	}
	user := s.user
	if m.rng.IntN(5) == 0 {
		user = m.users[m.rng.IntN(len(m.users))]
	}
	c := m.dial(user)
	m.send(c, token)
	m.judge(s, c, token, user)
}

func (m *resumeModel) send(c *modelClient, token string) {
	c.calls++
	c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r%d"},"payload":{"token":%q}}`, c.calls, token))
}

// answer returns the token in the answer, or the code of the error.
func (m *resumeModel) answer(c *modelClient) (token string, code errors.Code) {
	synctest.Wait()
	if c.Pending() == 0 {
		require.Equal(m.t, router.StatusSuperseded, c.Closed().Code) // before it was answered
		return "", errors.Aborted
	}
	frame := c.Next()
	if frame.Type == "RPC_ERROR" {
		var payload struct {
			Code errors.Code `json:"code"`
		}
		require.NoError(m.t, json.Unmarshal(frame.Payload, &payload))
		return "", payload.Code
	}
	var answer resumed
	require.NoError(m.t, json.Unmarshal(frame.Payload, &answer))
	return answer.Session.Token, ""
}

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
		s.lost, s.ended = time.Now(), ends
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
		if s.user != c.session.user || !s.lost.IsZero() || m.isOpen(o) {
			continue
		}
		s.lost, s.ended = time.Now(), true
		s.doubt = s.doubt || !m.works(o.node)
	}
	return err
}

// String describes the session for the log of a failed test.
func (s *modelSession) String() string {
	return fmt.Sprintf("session %s of %q on node %d", s.current[:4], s.user, s.owner.node)
}
