package presence_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/presence"
)

const peerIncarnation = 5

// newVictim returns a node that has members, tracks topics and knows the node "peer".
func newVictim() (*presence.Node, *recorder) {
	out := &recorder{}
	node := presence.New(presence.Config{
		Name:        "victim",
		Incarnation: peerIncarnation,
		Rand:        rand.New(rand.NewPCG(1, 2)),
		Output:      out,
		ChunkBytes:  200,
	})
	now := time.Unix(0, 0)
	peer := newPeer(&recorder{})
	node.PeerHeartbeat("peer", peer.Heartbeat(now), now)
	for i := range 3 {
		node.Track(fmt.Sprint("room/", i), now)
		node.Join(fmt.Sprint("room/", i), "own", "data")
	}
	node.Tick(now.Add(time.Second))
	*out = recorder{}
	return node, out
}

func newPeer(out *recorder) *presence.Node {
	return presence.New(presence.Config{
		Name:        "peer",
		Incarnation: peerIncarnation,
		Rand:        rand.New(rand.NewPCG(1, 2)),
		Output:      out,
		ChunkBytes:  100,
	})
}

// seedPackets returns packets of every kind.
func seedPackets(t testing.TB) (packets [][]byte) {
	out := &publisher{}
	peer := newPeer(&out.recorder)
	presence.SetOutput(peer, out)
	now := time.Unix(0, 0)
	for i := range 10 {
		peer.Join(fmt.Sprint("room/", i%3), fmt.Sprint("m", i), "some data")
	}
	peer.Leave("room/0", "m0")
	packets = append(out.published, peer.Heartbeat(now))
	incarnation := binary.BigEndian.AppendUint64(nil, peerIncarnation)
	asks := [][]byte{
		append([]byte{presence.KindQuery, 6}, "room/0\x06room/9"...),
		append(append([]byte{presence.KindAsk}, incarnation...), 1),
		append(append(append([]byte{presence.KindAsk}, incarnation...), 1), "\x06room/0\x02\x06room/1\x00"...),
	}
	for _, ask := range asks {
		peer.Receive("victim", ask, now)
		packets = append(packets, ask)
	}
	packets = append(packets, out.sent...)
	kinds := map[byte]bool{}
	for _, packet := range packets {
		kinds[packet[0]] = true
	}
	require.Len(t, kinds, 5, "packets of every kind")
	return packets
}

type publisher struct {
	recorder
	published [][]byte
}

func (p *publisher) Publish(_ string, packet []byte) { p.published = append(p.published, packet) }

// FuzzNode_Receive uses one incarnation for all nodes, so that few packets are ignored. The input is a sequence of packets, each after its length in one byte.
func FuzzNode_Receive(f *testing.F) {
	var all []byte
	for _, packet := range seedPackets(f) {
		if len(packet) < 256 {
			one := append([]byte{byte(len(packet))}, packet...)
			f.Add(one)
			all = append(all, one...)
		}
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, input []byte) {
		node, out := newVictim()
		now := time.Unix(2, 0)
		for len(input) > 0 {
			n := min(int(input[0])+1, len(input))
			packet := input[1:n]
			input = input[n:]
			node.PeerHeartbeat("peer", packet, now)
			node.Receive("peer", packet, now)
			now = now.Add(300 * time.Millisecond)
			node.Tick(now)
		}
		present := map[string]bool{}
		for _, e := range out.events {
			key := e.Topic + "\x00" + e.Member.ID
			require.NotEqual(t, e.Joined, present[key], "joins and leaves must alternate")
			present[key] = e.Joined
		}
		for i := range 3 {
			topic := fmt.Sprint("room/", i)
			for _, m := range node.Members(topic) {
				require.True(t, present[topic+"\x00"+m.ID])
				delete(present, topic+"\x00"+m.ID)
			}
		}
		for key, is := range present {
			require.False(t, is, "%q is present without being a member", key)
		}
		node.Heartbeat(now)
		node.PeerFailed("peer", now)
		node.Untrack("room/0")
	})
}
