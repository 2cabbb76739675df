package presence_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/presence"
)

const topic = "room/0"

// newPair starts two nodes that track a topic and know each other.
func newPair(t *testing.T, topics int) (s *simulation, a, b *simNode) {
	s = newSimulation(t, 1, topics)
	a, b = s.start(), s.start()
	for _, n := range s.order {
		for _, topic := range s.topics {
			n.track(topic)
		}
	}
	s.run(3 * time.Second)
	return s, a, b
}

// converge requires that the nodes agree within d.
func (s *simulation) converge(d time.Duration) {
	s.t.Helper()
	s.run(d)
	require.Empty(s.t, s.difference())
}

func (n *simNode) ids0() (ids []string) {
	for _, m := range n.node.Members(topic) {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestNode_JoinAndLeaveAreOnePacketEach(t *testing.T) {
	s, a, b := newPair(t, 1)
	s.resetCount()
	a.join(topic, "m", "data")
	a.join(topic, "m", "data")
	s.run(10 * time.Millisecond)
	assert.Equal(t, []presence.Member{{Node: a.name, ID: "m", Data: "data"}}, b.node.Members(topic))
	assert.Empty(t, a.node.Members(topic), "members of other nodes only")
	a.leave(topic, "m")
	a.leave(topic, "m")
	s.run(10 * time.Millisecond)
	assert.Empty(t, b.node.Members(topic))
	s.run(10 * time.Second)
	assert.Equal(t, 2, s.sent().packets)
}

func TestNode_FailedPeerReturnsWithoutTransfer(t *testing.T) {
	s, a, b := newPair(t, 1)
	a.join(topic, "m", "")
	s.run(20 * time.Second)
	s.resetCount()
	b.pause(50 * time.Second)
	s.run(6 * time.Second)
	b.join(topic, "unknown to others", "")
	b.leave(topic, "unknown to others")
	a.mute = true
	s.run(5 * time.Second)
	a.mute = false
	s.run(38 * time.Second)
	assert.Empty(t, a.node.Members(topic))
	s.converge(3 * time.Second)
	assert.Zero(t, s.sent().packets-2, "only the two changes")
}

func TestNode_FailedPeerIsHiddenAndRestored(t *testing.T) {
	s, a, b := newPair(t, 1)
	b.join(topic, "m", "")
	s.run(20 * time.Second)
	b.mute = true
	s.resetCount()
	s.run(5200 * time.Millisecond)
	assert.Empty(t, a.ids0(), "a silent peer's members leave")
	assert.Empty(t, s.shadow[a.name])
	b.mute = false
	s.run(1100 * time.Millisecond)
	assert.Equal(t, []string{"m"}, a.ids0())
	assert.Zero(t, s.sent().packets, "the state was kept")
}

func TestNode_PeerIsForgottenAfterOneMinute(t *testing.T) {
	s, a, b := newPair(t, 1)
	b.join(topic, "m", "")
	s.run(20 * time.Second)
	b.mute = true
	s.run(30 * time.Second)
	assert.Equal(t, 1, presence.Records(a.node))
	s.run(40 * time.Second)
	assert.Zero(t, presence.Records(a.node))
	b.mute = false
	s.resetCount()
	s.run(1500 * time.Millisecond)
	assert.Equal(t, []string{"m"}, a.ids0(), "the same incarnation is asked from 0")
	assert.Equal(t, 1, s.count[presence.KindAsk].packets)
}

func TestNode_PeerLeftIgnoresLateHeartbeat(t *testing.T) {
	s, a, b := newPair(t, 1)
	b.join(topic, "m", "")
	s.run(10 * time.Millisecond)
	late := b.node.Heartbeat(s.now)
	s.stop(b)
	a.node.PeerLeft(b.name, s.now)
	assert.Empty(t, a.ids0())
	a.node.PeerHeartbeat(b.name, late, s.now)
	s.resetCount()
	s.run(70 * time.Second)
	assert.Empty(t, a.ids0())
	assert.Zero(t, s.sent().packets)
}

func TestNode_NewIncarnationReplacesMembers(t *testing.T) {
	s, a, b := newPair(t, 1)
	b.join(topic, "old", "")
	s.run(2 * time.Second)
	b.node = presence.New(presence.Config{Name: b.name, Incarnation: 7, Rand: rand.New(rand.NewPCG(1, 1)), Output: b})
	b.members = map[string]map[string]string{}
	clear(s.shadow[b.name])
	b.node.Track(topic, s.now)
	b.join(topic, "new", "")
	s.run(2 * time.Second)
	assert.Equal(t, []string{"new"}, a.ids0())
}

func TestNode_RetriesUntilAnswered(t *testing.T) {
	s, a, b := newPair(t, 1)
	a.muteTopics = true
	s.cut[[2]string{b.name, a.name}] = true // b's requests are lost
	a.join(topic, "m", "")
	s.resetCount()
	s.run(30 * time.Second)
	asks := s.count[presence.KindAsk].packets
	assert.Greater(t, asks, 10)
	assert.Less(t, asks, 18, "requests are up to 2.2 s apart")
	delete(s.cut, [2]string{b.name, a.name})
	s.converge(2500 * time.Millisecond)
	s.resetCount()
	s.run(30 * time.Second)
	assert.Zero(t, s.sent().packets)
}

// A recorder keeps what a node sends to others.
type recorder struct {
	sent   [][]byte
	events []presence.Event
}

func (r *recorder) Publish(_ string, packet []byte) { _ = packet }
func (r *recorder) Send(_ string, packet []byte)    { r.sent = append(r.sent, packet) }
func (r *recorder) Broadcast(packet []byte)         { r.sent = append(r.sent, packet) }
func (r *recorder) Changed(e presence.Event)        { r.events = append(r.events, e) }

func TestNode_SendsFullStateIfLogHasForgottenChange(t *testing.T) {
	s, a, b := newPair(t, 1)
	for i := range 100 {
		a.join(topic, fmt.Sprint("m", i), "")
	}
	s.run(20 * time.Second)
	a.muteTopics = true
	a.leave(topic, "m7")
	for i := range 5000 {
		a.node.Join("other", fmt.Sprint(i), "")
	}
	s.resetCount()
	s.converge(4 * time.Second)
	assert.Len(t, b.ids0(), 99)
	assert.Equal(t, 1, s.count[presence.KindAsk].packets, "the first answer is correct, without repair by checksum")
}

func TestNode_HeartbeatChecksumRepairsState(t *testing.T) {
	s, a, b := newPair(t, 10)
	for _, topic := range s.topics {
		a.join(topic, "m", "")
	}
	s.run(30 * time.Second)
	require.True(t, presence.Corrupt(b.node, a.name, topic, "m"))
	require.NotEmpty(t, s.difference())
	s.converge(2500 * time.Millisecond)
	assert.Equal(t, 1, b.node.Repairs())
}

func TestNode_HeartbeatIsBounded(t *testing.T) {
	s, a, b := newPair(t, 1)
	for i := range 10_000 {
		a.node.Join(fmt.Sprint("other/", i), "m", strings.Repeat("x", 1000))
	}
	b.track("other/3")
	s.topics = append(s.topics, "other/3")
	a.members["other/3"] = map[string]string{"m": strings.Repeat("x", 1000)}
	assert.Less(t, len(a.node.Heartbeat(s.now)), 3*4096)
	s.resetCount()
	s.converge(3 * time.Second)
	assert.Less(t, s.sent().packets, 20)
}

func TestNode_IgnoresTruncatedPackets(t *testing.T) {
	for _, packet := range seedPackets(t) {
		for n := range len(packet) {
			node, out := newVictim()
			node.PeerHeartbeat("peer", packet[:n], time.Unix(1, 0))
			node.Receive("peer", packet[:n], time.Unix(1, 0))
			node.Tick(time.Unix(5, 0))
			if packet[0] == presence.KindChange {
				require.Empty(t, out.events, "%d of %d bytes", n, len(packet))
			}
		}
	}
}

func TestNode_IgnoresPacketsOfOtherIncarnations(t *testing.T) {
	for _, packet := range seedPackets(t) {
		node, out := newVictim()
		if packet[0] != presence.KindQuery {
			packet[1]++
			node.Receive("peer", packet, time.Unix(1, 0))
		}
		node.Receive("stranger", packet, time.Unix(1, 0))
		assert.Empty(t, out.events)
		assert.True(t, packet[0] == presence.KindQuery || len(out.sent) == 0)
	}
}

// TestNode_AnswersTopicsOfRequestOnce keeps a short packet from requesting a state many times.
func TestNode_AnswersTopicsOfRequestOnce(t *testing.T) {
	node, out := newVictim()
	for _, end := range []string{"\x06room/0\x00", "\x06room/0\x00\x06room/0\x00\x06room/0\x00"} {
		packet := append([]byte{presence.KindAsk, 0, 0, 0, 0, 0, 0, 0, peerIncarnation, 0}, end...)
		node.Receive("peer", packet, time.Unix(1, 0))
	}
	require.Len(t, out.sent, 2)
	assert.Equal(t, out.sent[0], out.sent[1])
}

// TestNode_IgnoresStateThatIsOlderThanTracking receives a state that was requested before the topic
// was untracked and tracked again.
func TestNode_IgnoresStateThatIsOlderThanTracking(t *testing.T) {
	out := &recorder{}
	peer, now := newPeer(out), time.Unix(3, 0)
	peer.Join(topic, "m", "")
	peer.Receive("victim", append([]byte{presence.KindQuery, byte(len(topic))}, topic...), now)
	require.Len(t, out.sent, 1)
	peer.Leave(topic, "m")

	node, _ := newVictim()
	node.PeerHeartbeat("peer", peer.Heartbeat(now), now)
	node.Untrack(topic)
	node.Track(topic, now)
	node.Receive("peer", out.sent[0], now)
	assert.Empty(t, node.Members(topic))
}
