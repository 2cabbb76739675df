package topic

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic/presence"
)

// A recordingNode records what a topic announces, as "+ID" and "-ID". The lock of the topic guards it.
type recordingNode struct {
	silentNode

	log []string
}

func (n *recordingNode) Join(_, id, data string) {
	if strings.Contains(data, `"ended":true`) {
		id += " ended"
	}
	n.log = append(n.log, "+"+id)
}

func (n *recordingNode) Leave(_, id string) { n.log = append(n.log, "-"+id) }
func (*recordingNode) Track(string)         {}
func (*recordingNode) Untrack(string)       {}

// A presenceTest has a topic with PresenceGrace, two connections of a user, and one that keeps the
// topic.
type presenceTest struct {
	*Topics

	t      *testing.T
	node   recordingNode
	topic  *Topic
	conns  []*Subscriber
	events []string // that the application has received, as "+ID" and "-ID"
}

const testGrace = 10 * time.Second

func newPresenceTest(t *testing.T) *presenceTest {
	p := &presenceTest{Topics: new(Topics), t: t, conns: numbered(3)}
	p.Init(Config{MaxTopics: 1, Away: present.New(100, 100), PresenceWaits: func() {}})
	p.Connect(&p.node, nil)
	pattern := &Pattern{Options: Options{PresenceGrace: testGrace}}
	for _, c := range p.conns {
		p.topic = p.addLocked("room", pattern, c, false)
	}
	return p
}

// user is the member of conns[0] and conns[1].
func user(stays time.Duration) presence.Announced {
	return presence.Announced{Member: protocol.Member{ConnID: "user", UserID: "u"}, Stays: stays}
}

// close closes a connection whose user may come back.
func (p *presenceTest) close(c *Subscriber) {
	leave := func(*present.Absence, present.Action) { p.Remove(p.topic, c, true) }
	assert.True(p.t, p.Stay(p.topic, c, &present.Absence{User: present.User{UserID: "u"}, Client: new(present.Client), Act: leave}, false))
}

// staying returns the number of closed connections with which users stay present.
func (p *presenceTest) staying() int {
	_, others := p.config.Away.Len()
	return others
}

// expect compares the members, what was announced, and what the application has received since the
// last call.
func (p *presenceTest) expect(members, announced, events string) {
	p.t.Helper()
	synctest.Wait()
	var ids []string
	for _, m := range p.Members("room") {
		ids = append(ids, m.ConnID)
	}
	for e, ok := p.NextPresence(); ok; e, ok = p.NextPresence() {
		p.events = append(p.events, map[bool]string{true: "+", false: "-"}[e.Joined]+e.Member.ConnID)
	}
	p.topic.mu.Lock()
	defer p.topic.mu.Unlock()
	assert.Equal(p.t, members, strings.Join(ids, ", "), "members")
	assert.Equal(p.t, announced, strings.Join(p.node.log, ", "), "announced")
	assert.Equal(p.t, events, strings.Join(p.events, ", "), "events")
	p.node.log, p.events = nil, nil
}

// TestPresence_Clock lets time pass while clients and nodes are away. Package presence tests the events.
func TestPresence_Clock(t *testing.T) {
	for name, steps := range map[string]func(p *presenceTest){
		"leaves when no client comes back": func(p *presenceTest) {
			p.close(p.conns[0])
			p.expect("user", "", "")
			time.Sleep(testGrace)
			p.expect("", "+user 10000 ended, -user 10000", "-user")
			assert.Zero(p.t, p.staying())
		},
		"comes back in time": func(p *presenceTest) {
			p.close(p.conns[0])
			p.JoinLocked(p.topic, p.conns[1], user(testGrace))
			p.expect("user", "", "")
			assert.Zero(p.t, p.staying(), "the earlier connection has left")
			time.Sleep(2 * testGrace)
			p.expect("user", "", "")
		},
		"access ends while away": func(p *presenceTest) {
			p.close(p.conns[0])
			p.config.Away.Revoke(present.User{UserID: "other"}, func(string) bool { return true })
			p.config.Away.Revoke(present.User{UserID: "u"}, func(topic string) bool { return topic != "room" })
			p.expect("user", "", "")
			p.config.Away.Revoke(present.User{UserID: "u"}, func(topic string) bool { return topic == "room" })
			p.expect("", "+user 10000 ended, -user 10000", "-user")
		},
		"node ends, and the member may come back": func(p *presenceTest) {
			other := broker.Member{Node: "b", ID: "other 20000", Data: `{}`}
			p.PresenceChanged("room", other, true)
			p.expect("other, user", "", "+other")
			p.config.Away.NodeLeft("b")
			p.PresenceChanged("room", other, false)
			time.Sleep(20*time.Second - 1)
			p.expect("other, user", "", "")
			time.Sleep(time.Nanosecond)
			p.expect("user", "", "-other")
		},
		"member moves between nodes": func(p *presenceTest) {
			other := broker.Member{Node: "b", ID: "other 20000", Data: `{}`}
			p.PresenceChanged("room", other, true)
			p.PresenceChanged("room", other, false) // before its new node has announced it
			p.expect("other, user", "", "+other")
			other.Node = "c"
			p.PresenceChanged("room", other, true)
			time.Sleep(2 * presence.TakeOverHold)
			p.expect("other, user", "", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPresenceTest(t)
				p.JoinLocked(p.topic, p.conns[0], user(testGrace))
				p.expect("user", "+user 10000", "+user")
				steps(p)
			})
		})
	}
}
