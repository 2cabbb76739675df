package present

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var ann = User{"t", "ann"}

// A test has one absence of ann in a state, and notes what it must do.
type test struct {
	*Table

	a *Absence

	mu      sync.Mutex
	actions []string
}

const within = time.Minute

// room is the topic of the absence.
const room = "room/a"

func newTest(state string) *test {
	s := &test{Table: New(1, 1)}
	s.a = &Absence{User: ann, Stays: 2 * within, Act: s.note, Client: new(Client)}
	if state == "held" {
		s.a.Of, s.a.Client = "node", nil
		return s
	}
	s.a.Client.Address = netip.MustParsePrefix("192.0.2.1/32")
	if state == "waiting" || state == "evicted" || state == "recorded" {
		s.a.Of, s.a.Client.Generation = "session", 1
	}
	return s
}

func (s *test) note(_ *Absence, do Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := [...]string{Leave: "Leave", Expire: "Expire", End: "End", Evict: "Evict"}[do.Kind]
	if do.Kind == Leave && (len(do.Topics) != 1 || do.Topics[0] != room) {
		text += fmt.Sprint(" ", do.Topics)
	}
	s.actions = append(s.actions, text)
}

// did returns what the absence had to do since the last call.
func (s *test) did() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.actions, " ")
	s.actions = nil
	return text
}

// wait adds a session with a topic, unless it is recorded next.
func (s *test) wait(topics ...string) {
	s.Wait(s.a, within)
	for _, topic := range topics {
		s.Stay(s.a, topic, 0)
	}
}

// reach brings an absence into a state.
var reach = map[string]func(*test){
	"-":        func(*test) {},
	"waiting":  func(s *test) { s.wait(room) },
	"evicted":  func(s *test) { s.wait(room); events["too many"](s) },
	"recorded": func(s *test) { s.wait(); s.Unused(s.a, s.note) },
	"grace":    func(s *test) { s.Stay(s.a, room, within) },
	"held":     func(s *test) { s.Hold(s.a, room, within) },
}

// events are those of the table in doc.go.
var events = map[string]func(*test){
	"wait":   func(s *test) { s.Wait(s.a, within) },
	"hold":   func(s *test) { s.Hold(s.a, room, within) },
	"stay":   func(s *test) { s.Stay(s.a, room, within) },
	"time":   func(*test) { time.Sleep(within) },
	"access": func(s *test) { s.EndAccess(ann, func(uint32) bool { return true }) },
	"revoke": func(s *test) { s.Revoke(ann, func(topic string) bool { return topic == room }) },
	"too many": func(s *test) {
		s.Stay(&Absence{User: ann, Client: new(Client), Act: func(*Absence, Action) {}}, room, within)
	},
	"taken over": func(s *test) {
		s.TakenOver(s.a, "other")
		s.TakenOver(s.a, room)
	},
	"unused": func(s *test) { s.a.topics = nil; s.Unused(s.a, s.note) },
	"moved":  func(s *test) { s.Moved("session", 1); s.Moved("session", 2) },
	"forget": func(s *test) { s.Forget(s.a) },
	"close":  func(s *test) { s.Close() },
}

// possible reports whether an event can happen in a state: an absence is added once, and only a session can be unused.
func possible(event, state string) bool {
	switch event {
	case "wait", "hold":
		return state == "-"
	case "stay":
		return state != "held"
	case "unused":
		return state == "waiting" || state == "evicted"
	default:
		return true
	}
}

func (s *test) name() string {
	s.Table.mu.Lock()
	defer s.Table.mu.Unlock()
	return [...]string{"-", "waiting", "evicted", "recorded", "grace", "held"}[s.a.state]
}

// A cell is what an event does in a state.
type cell struct{ next, action string }

// readTable returns the table in doc.go, by event and state.
func readTable(t *testing.T) map[[2]string]cell {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, rows, _ := strings.Cut(string(text), "  ------\n")
	table := map[[2]string]cell{}
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S.{11})(\S.{37})(\S+) *(\S*)$`).FindAllStringSubmatch(rows, -1) {
		for state := range strings.FieldsSeq(row[2]) {
			key := [2]string{strings.TrimSpace(row[1]), state}
			assert.NotContains(t, table, key)
			assert.Contains(t, events, key[0])
			assert.Contains(t, reach, key[1])
			table[key] = cell{strings.ReplaceAll(row[3], "=", state), row[4]}
		}
	}
	return table
}

// TestTable_EveryEventInEveryState compares the package with the table in its documentation.
func TestTable_EveryEventInEveryState(t *testing.T) {
	table := readTable(t)
	require.Len(t, table, 33)
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
				s := newTest(state)
				build(s)
				s.did()
				require.Equal(t, state, s.name())
				happens(s)
				assert.Equal(t, want.action, s.did(), "%s in state %s", event, state)
				assert.Equal(t, want.next, s.name(), "%s in state %s", event, state)
				s.Close()
				assert.Empty(t, s.absences, "%s in state %s", event, state)
				time.Sleep(time.Hour)
				assert.Empty(t, s.did(), "%s in state %s: nothing happens later", event, state)
			})
		}
	}
}

func TestTable_HeldMembersOfNodeThatHasEnded(t *testing.T) {
	for name, events := range map[string]func(*test){
		"before it is held": func(s *test) { s.NodeLeft("node"); s.Hold(s.a, room, within) },
		"after it is held":  func(s *test) { s.Hold(s.a, room, within); s.NodeLeft("other"); s.NodeLeft("node") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTest("held")
				events(s)
				time.Sleep(2*within - 1)
				assert.Empty(t, s.did())
				time.Sleep(time.Nanosecond)
				assert.Equal(t, "Leave", s.did())
			})
		})
	}
	for name, events := range map[string]func(*test){
		"it has returned":  func(s *test) { s.NodeLeft("node"); s.NodeReturned("node") },
		"it is forgotten":  func(s *test) { s.NodeLeft("node"); time.Sleep(nodeMemory) },
		"another one ends": func(s *test) { s.NodeLeft("other") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTest("held")
				events(s)
				s.Hold(s.a, room, within)
				time.Sleep(within)
				assert.Equal(t, "Leave", s.did())
				s.NodeLeft("late")
				assert.LessOrEqual(t, len(s.ended), 2)
			})
		})
	}
}

// TestTable_TopicsHaveTimesOfTheirOwn lets a client without a session stay in two topics.
func TestTable_TopicsHaveTimesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTest("grace")
		assert.False(t, s.Stay(nil, room, within))
		assert.False(t, s.Stay(s.a, "none", 0))
		assert.True(t, s.Stay(s.a, "later", 2*within))
		assert.True(t, s.Stay(s.a, room, within))
		time.Sleep(within)
		assert.Equal(t, "Leave", s.did())
		assert.True(t, s.Stay(s.a, room, 3*within))
		time.Sleep(within)
		assert.Equal(t, "Leave [later]", s.did())
		time.Sleep(2 * within)
		assert.Equal(t, "Leave", s.did())
		assert.Equal(t, "-", s.name())
		sessions, others := s.Len()
		assert.Zero(t, sessions+others)
	})
}

// TestTable_NextTopicOfClientThatWasTooMany lets a client stay in another topic after it was the oldest one.
func TestTable_NextTopicOfClientThatWasTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTest("grace")
		assert.True(t, s.Stay(s.a, room, within))
		events["too many"](s)
		assert.Equal(t, "Leave", s.did())
		assert.True(t, s.Stay(s.a, "later", within))
		assert.Empty(t, s.did())
		time.Sleep(within)
		assert.Equal(t, "Leave [later]", s.did())
	})
}

// TestTable_EndAccessOfEarlierAuthentications ends the sessions whose users were authenticated before.
func TestTable_EndAccessOfEarlierAuthentications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTest("waiting")
		s.a.Client.Since = 7
		s.wait(room)
		s.EndAccess(ann, func(since uint32) bool { return since < 7 })
		s.EndAccess(User{"t", "bob"}, func(uint32) bool { return true })
		assert.Empty(t, s.did())
		s.EndAccess(ann, func(since uint32) bool { return since == 7 })
		assert.Equal(t, "End", s.did())
	})
}

// TestTable_BoundsClientsOfUsersAndAddresses adds clients of users and without one, of two addresses, and held members.
func TestTable_BoundsClientsOfUsersAndAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(2, 3)
		var evicted []string
		add := func(name string, user string, address byte) {
			a := &Absence{User: User{"t", user}, Of: name, Client: new(Client), Act: func(_ *Absence, do Action) {
				assert.Equal(t, Evict, do.Kind)
				evicted = append(evicted, name)
			}}
			if address != 0 {
				a.Client.Address = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, address}), 32)
			}
			table.Wait(a, within)
			synctest.Wait()
		}
		for i := range 10 {
			table.Hold(&Absence{User: ann}, fmt.Sprint("held/", i), within)
			add(fmt.Sprint("unknown ", i), "", 0)
		}
		add("1", "ann", 1)
		add("2", "ann", 2)
		add("3", "", 1)
		add("4", "bob", 1)
		assert.Empty(t, evicted)
		add("5", "ann", 2)
		assert.Equal(t, []string{"1"}, evicted)
		add("6", "", 1)
		assert.Equal(t, []string{"1"}, evicted, "an evicted one does not count")
		add("7", "", 1)
		assert.Equal(t, []string{"1", "3"}, evicted)
		table.Close()
	})
}

// TestTable_RecordsAreForgotten records sessions of many users, which do not come back.
func TestTable_RecordsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(1, 1)
		for i := range 1000 {
			a := &Absence{User: User{"t", fmt.Sprint(i)}, Of: fmt.Sprint("session ", i), Client: new(Client)}
			table.Wait(a, within)
			assert.True(t, table.Unused(a, nil))
			time.Sleep(within / 10)
			synctest.Wait()
			assert.LessOrEqual(t, len(table.absences), 2*10)
		}
	})
	unbounded := New(math.MaxInt, math.MaxInt)
	a := &Absence{User: ann, Of: "session", Client: &Client{Address: netip.MustParsePrefix("192.0.2.1/32")}}
	unbounded.Wait(a, within)
	assert.True(t, unbounded.Unused(a, nil))
	assert.Empty(t, unbounded.absences, "nothing counts the records")
}

func TestDisconnects_ForgetTheOldest(t *testing.T) {
	table := New(1, 1)
	found := func(user int, since uint32) string {
		after := func(number uint32) bool { return int32(number-since) > 0 }
		switch code, reason, ok := table.DisconnectOf(User{"t", fmt.Sprint(user)}, after); {
		case !ok:
			return "none"
		case code == 0:
			return "unknown"
		default:
			return reason
		}
	}
	add := func(user int, number uint32, reason string) {
		table.Disconnected(User{"t", fmt.Sprint(user)}, number, 4000, reason)
	}
	assert.Equal(t, "none", found(1, 0))
	add(1, 5, "one")
	assert.Equal(t, "one", found(1, 4))
	assert.Equal(t, "none", found(1, 5), "it was authenticated afterwards")
	assert.Equal(t, "none", found(2, 4))
	for n := range maxDisconnects {
		add(10+n, uint32(6+n), "other")
	}
	assert.Equal(t, "unknown", found(1, 4))
	assert.Equal(t, "unknown", found(2, 4))
	assert.Equal(t, "none", found(2, 5+maxDisconnects), "only newer ones matter")
	assert.Equal(t, "other", found(9+maxDisconnects, 4+maxDisconnects))
}
