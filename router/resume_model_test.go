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
	"github.com/penstock-go/penstock/internal/testscale"
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
	cuts     []*unreliableBroker
	away     []time.Time // since when the store of a node is away; zero if it is not
	users    []string
	sessions []*modelSession
	clients  []*modelClient // whose connections are open, as far as the client knows

	accepted, rejected, concurrent, doubtful int
}

// TestResume_OnlyOwnersOfValidTokensSucceed interleaves greetings, resumes with all kinds of tokens,
// lost answers, acknowledgments, closed and lost connections, crashed nodes, lost packets, and time.
func TestResume_OnlyOwnersOfValidTokensSucceed(t *testing.T) {
	t.Parallel()
	seeds, steps := testscale.Tiers[uint64](4, 5, 20), 250
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
		cut := &unreliableBroker{Broker: shared}
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
		time.Sleep(time.Duration(m.rng.Int64N(int64(20 * time.Second))))
	default:
		time.Sleep(time.Duration(m.rng.Int64N(int64(resumeWithin * 3 / 2))))
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
