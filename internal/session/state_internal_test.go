package session

import (
	"context"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"

	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
)

const within = time.Minute

// A testConn is a connection that notes what it must do.
type testConn struct {
	Conn

	mu      sync.Mutex
	actions []string
	left    []string
	reasons []EndReason // of ReportEnd
}

func newTestConn(id string) *testConn {
	c := &testConn{Conn: Conn{ID: id, Address: netip.MustParsePrefix("192.0.2.1/32")}}
	c.Act = func(s *Session, a Action) {
		c.mu.Lock()
		defer c.mu.Unlock()
		name := [...]string{"StopServing", "GiveUp", "LeaveTopics", "ReportEnd", "EndAccess"}[a.Kind]
		if a.Kind == EndAccess {
			if topics, end := s.Apply(a.Revoked); len(topics) == 0 && end == nil {
				return
			}
		}
		c.actions, c.left = append(c.actions, name), append(c.left, a.Topics...)
		if a.Kind == ReportEnd {
			c.reasons = append(c.reasons, a.Reason)
		}
	}
	return c
}

// A testSession is a session of ann in one of the states.
type testSession struct {
	*Session

	t     *testing.T
	store *testStore
	node  *Node
	conn  *testConn
	claim *Claim
}

var ann = Identity{User: User{"t", "ann"}}

func newTestNode(store broker.ValueStore) *Node {
	return New(Config{
		Store: store, Within: within, MaxBytes: 1000, Away: present.New(1, 1), WatchesEnds: true, Publish: func(Packet, string, []byte) {},
	})
}

func admitAll(string, []string) (map[string]struct{}, error) { return nil, nil }

// newTestSession claims a session that a connection of another node has opened.
func newTestSession(t *testing.T) *testSession {
	store := newTestStore()
	other := newTestConn("other")
	first := newTestNode(store).Begin(&other.Conn, ann, nil, nil)
	require.True(t, first.StoreFirst(t.Context()))
	s := &testSession{t: t, store: store, node: newTestNode(store), conn: newTestConn("conn")}
	token, _ := first.Token()
	var err error
	s.claim, err = s.node.Claim(t.Context(), &Request{Token: token, Conn: &s.conn.Conn, Identity: ann, Admit: admitAll})
	require.NoError(t, err)
	s.Session = s.claim.Session
	first.settled = true // its node has ended
	first.node.timers.Stop(first)
	return s
}

// reach brings a session that is claiming into a state.
var reach = map[string]func(*testSession){
	"claiming":        func(*testSession) {},
	"open":            (*testSession).adopt,
	"detached":        func(s *testSession) { s.adopt(); s.disconnect() },
	"superseded":      func(s *testSession) { s.adopt(); s.receive(PacketClaimed) },
	"superseded-away": func(s *testSession) { s.adopt(); s.disconnect(); s.receive(PacketClaimed) },
	"moved":           func(s *testSession) { s.adopt(); s.receive(PacketMoved) },
	"ended":           func(s *testSession) { s.adopt(); s.Discard() },
	"ended-away":      func(s *testSession) { s.adopt(); s.disconnect(); events["no record"](s) },
	"abandoned":       func(s *testSession) { s.adopt(); s.handle(s.abandonLocked) },
}

func (s *testSession) adopt() { require.NoError(s.t, s.claim.Adopt(ann, nil, nil)) }

func (s *testSession) disconnect() {
	s.Disconnected(false, false)
	s.node.config.Away.Stay(s.Away(), "room/a", 0)
}

// count returns how many sessions the node knows, and how many of these are waited for.
func (n *Node) count() [2]int {
	waiting, _ := n.config.Away.Len()
	return [2]int{n.Len(), waiting}
}

// leave adds a client without a session, who stays present, and notes in ended when that ends.
func (n *Node) leave(user User, address netip.Prefix, ended func()) {
	a := &present.Absence{User: present.User(user), Client: &present.Client{Address: address}}
	a.Act = func(*present.Absence, present.Action) { ended() }
	n.config.Away.Stay(a, "room/b", within)
}

func (s *testSession) receive(kind Packet) {
	next := &Session{id: s.id, generation: s.generation + 1}
	s.store.replace(s.id, &record{ConnID: "next", Generation: next.generation})
	packet := next.packet()
	if kind == PacketMoved {
		packet = wire.AppendString(packet, "room/ended")
	}
	s.node.Receive(kind, packet)
}

// events are those of the table in doc.go.
var events = map[string]func(*testSession){
	"adopt":     func(s *testSession) { _ = s.claim.Adopt(ann, nil, nil) },
	"claimed":   func(s *testSession) { s.receive(PacketClaimed) },
	"in topics": func(s *testSession) { s.receive(PacketMoved) },
	"lost conn": func(s *testSession) { s.Disconnected(false, false) },
	"closed":    func(s *testSession) { s.Disconnected(true, false) },
	"discard":   func(s *testSession) { s.Discard() },
	"replace":   func(s *testSession) { s.handle(s.abandonLocked) },
	"identity":  func(s *testSession) { s.SetIdentity(Identity{User: ann.User, ExpiresAt: time.Now().Add(time.Hour)}) },
	"grant":     func(s *testSession) { s.Grant("room/b", Grant{}) },
	"revoke": func(s *testSession) {
		require.NoError(s.t, s.node.EndSessions(s.t.Context(), ann.User, End{Code: 4000}))
		s.Fire()
	},
	"tick": func(s *testSession) { s.Fire() },
	"other node": func(s *testSession) {
		s.store.replace(s.id, &record{ConnID: "next", Generation: s.generation + 1})
		s.Fire()
	},
	"no record": func(s *testSession) {
		s.store.replace(s.id, nil)
		s.Fire()
	},
	"time is up": func(s *testSession) { s.node.endWaiting(s.id, s.conn.ID, Expired) },
	"too many":   func(s *testSession) { s.node.leave(ann.User, netip.Prefix{}, func() {}) },
	"access": func(s *testSession) {
		s.node.config.Away.EndAccess(present.User(ann.User), func(uint32) bool { return true })
	},
	"stop": func(s *testSession) { s.node.Close(s.t.Context()) },
}

// possible reports whether an event can happen: a session that is claiming is not that of its connection
// yet, and Adopt is called once.
func possible(event, state string) bool {
	switch event {
	case "adopt":
		return state == "claiming"
	case "lost conn", "closed", "discard", "identity", "grant", "revoke", "tick", "other node", "no record":
		return state != "claiming"
	default:
		return true
	}
}

// name returns the state as the table calls it.
func (s *testSession) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := [...]string{"claiming", "open", "detached", "superseded", "moved", "ended", "abandoned"}[s.state]
	if s.waitsLocked() && s.state != detached {
		name += "-away"
	}
	return name
}

// effects returns what has happened since the last call.
func (s *testSession) effects() []string {
	synctest.Wait()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	all := append(s.conn.actions, s.store.log...)
	s.conn.actions, s.conn.left, s.store.log = nil, nil, nil
	return all
}

// A cell is what an event does in a state.
type cell struct {
	next    string
	effects string
}

// readTable returns the table in doc.go, by event and state.
func readTable(t *testing.T) map[[2]string]cell {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	table := map[[2]string]cell{}
	rows := regexp.MustCompile(`(?m)^//\t(\S.{11})(\S.{34}) (\S+) *(.*)$`).FindAllStringSubmatch(string(text), -1)
	for _, row := range rows[2:] {
		for state := range strings.FieldsSeq(row[2]) {
			key := [2]string{strings.TrimSpace(row[1]), state}
			assert.NotContains(t, table, key)
			assert.Contains(t, events, key[0])
			assert.Contains(t, reach, key[1])
			table[key] = cell{row[3], strings.TrimSpace(row[4])}
		}
	}
	return table
}

// TestSession_EveryEventInEveryState compares the package with the table in its documentation.
func TestSession_EveryEventInEveryState(t *testing.T) {
	table := readTable(t)
	require.Len(t, table, 53)
	for state, build := range reach {
		for event, happens := range events {
			want, ok := table[[2]string{event, state}]
			if !possible(event, state) {
				assert.False(t, ok, "%s in state %s cannot happen", event, state)
				continue
			}
			if !ok {
				want = cell{next: state}
			}
			synctest.Test(t, func(t *testing.T) {
				s := newTestSession(t)
				build(s)
				s.effects()
				require.Equal(t, state, s.name())
				happens(s)
				effects := s.effects()
				assert.Equal(t, want.next, s.name(), "%s in state %s", event, state)
				slices.Sort(effects)
				assert.Equal(t, want.effects, strings.Join(slices.Compact(effects), " "), "%s in state %s", event, state)
				s.end()
			})
		}
	}
}

// end stops the timers.
func (s *testSession) end() {
	s.node.Close(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node.timers.Stop(s.Session)
}

// TestSession_TimersExpireSessions lets time pass: a session is stored again while its connection is open,
// and ends a second after its client can no longer come back.
func TestSession_TimersExpireSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t)
		s.adopt()
		time.Sleep(10 * within)
		synctest.Wait()
		assert.Equal(t, "open", s.name())
		assert.Equal(t, s.generation, s.store.record(s.id).Generation)
		s.disconnect()
		time.Sleep(within - time.Millisecond)
		synctest.Wait()
		assert.Equal(t, s.generation, s.store.record(s.id).Generation)
		s.store.mu.Lock()
		s.store.away = true // when the session ends is unknown
		s.store.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, "detached", s.name())
		s.store.mu.Lock()
		s.store.away = false
		s.store.mu.Unlock()
		time.Sleep(within / 3)
		synctest.Wait()
		assert.Equal(t, "ended", s.name())
		assert.Equal(t, []string{"room/a"}, s.conn.left)
		assert.Subset(t, s.effects(), []string{"LeaveTopics", "ReportEnd"})
		assert.Zero(t, s.node.count())
	})
}

// TestSession_AccessEndsInTopics ends the access of a user whose client is away to one of two topics.
func TestSession_AccessEndsInTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t)
		defer s.end()
		s.adopt()
		s.disconnect()
		away := s.node.config.Away
		require.True(t, away.Stay(s.Away(), "hall/a", 0))
		rooms := topicname.NewMatcher("room/{id}")
		away.Revoke(present.User{TenantID: "t", UserID: "bob"}, rooms.Matches)
		assert.Empty(t, s.conn.left)
		away.Revoke(present.User(ann.User), rooms.Matches)
		assert.Equal(t, []string{"room/a"}, s.conn.left)
		s.receive(PacketMoved)
		assert.Equal(t, []string{"room/a", "hall/a"}, s.conn.left)
		assert.True(t, s.GoesOn("hall/a"))
		assert.False(t, s.GoesOn("room/ended"))
	})
}
