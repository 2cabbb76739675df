package presence_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/presence"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A fault begins at some node, and returns what ends it. Faults of links end with the schedule.
type fault struct {
	name  string
	begin func(s *simulation, n *simNode) (end func())
}

func faults() []fault {
	nothing := func() {}
	return []fault{
		{"loss", func(s *simulation, _ *simNode) func() {
			s.loss = 0.05 + 0.4*s.rand.Float64()
			return func() { s.loss = 0 }
		}},
		{"duplication", func(s *simulation, _ *simNode) func() {
			s.duplication = 0.3
			return func() { s.duplication = 0 }
		}},
		{"delay", func(s *simulation, _ *simNode) func() {
			s.delay = time.Duration(1 + s.rand.Int64N(int64(2*time.Second)))
			return func() { s.delay = 5 * time.Millisecond }
		}},
		{"reordering of paths", func(s *simulation, _ *simNode) func() {
			s.paths = 4
			s.delay = max(s.delay, 50*time.Millisecond)
			return func() { s.delay = 5 * time.Millisecond }
		}},
		{"short pause", func(s *simulation, n *simNode) func() {
			n.pause(time.Duration(s.rand.Int64N(int64(5 * time.Second))))
			return nothing
		}},
		{"long pause", func(s *simulation, n *simNode) func() {
			n.pause(time.Duration(30+s.rand.IntN(100)) * time.Second)
			return nothing
		}},
		{"mute node", func(_ *simulation, n *simNode) func() {
			n.mute = true
			return func() { n.mute = false }
		}},
		{"deaf node", func(_ *simulation, n *simNode) func() {
			n.deaf = true
			return func() { n.deaf = false }
		}},
		{"failing publishes", func(_ *simulation, n *simNode) func() {
			n.muteTopics = true
			return func() { n.muteTopics = false }
		}},
		{"one-way partition", func(s *simulation, n *simNode) func() {
			pair := [2]string{n.name, s.anyNode().name}
			s.cut[pair] = true
			return func() { delete(s.cut, pair) }
		}},
		{"isolation", func(_ *simulation, n *simNode) func() {
			n.mute, n.deaf = true, true
			return func() { n.mute, n.deaf = false, false }
		}},
		{"restart", func(s *simulation, n *simNode) func() {
			s.stop(n)
			s.start()
			return nothing
		}},
		{"graceful leave", func(s *simulation, n *simNode) func() {
			s.stop(n)
			for _, other := range s.order {
				n.transmit(other, "heartbeat", func() {
					delete(other.lastSeen, n.name)
					other.node.PeerLeft(n.name, other.now)
				})
			}
			s.start()
			return nothing
		}},
		{"corruption", func(s *simulation, n *simNode) func() {
			for range 10 {
				other, topic := s.anyNode(), s.anyTopic()
				for _, m := range n.node.Members(topic) {
					if m.Node == other.name && presence.Corrupt(n.node, m.Node, topic, m.ID) {
						return nothing
					}
				}
			}
			return nothing
		}},
	}
}

func (s *simulation) anyNode() *simNode { return s.order[s.rand.IntN(len(s.order))] }
func (s *simulation) anyTopic() string  { return s.topics[s.rand.IntN(len(s.topics))] }

// work makes one random change.
func (s *simulation) work() {
	n, topic := s.anyNode(), s.anyTopic()
	if n.paused {
		return
	}
	switch k := s.rand.IntN(20); {
	case k < 10:
		n.ids++
		n.join(topic, fmt.Sprint("m", n.ids%12), strings.Repeat("x", s.rand.IntN(30))+fmt.Sprint(n.ids))
		if s.rand.IntN(4) > 0 && !n.tracked[topic] {
			n.track(topic)
		}
	case k < 17:
		for id := range 12 {
			if _, ok := n.members[topic][fmt.Sprint("m", id)]; ok {
				n.leave(topic, fmt.Sprint("m", id))
				break
			}
		}
	case k < 19:
		n.track(topic)
	default:
		n.untrack(topic)
	}
}

// workFor makes changes for d. Some schedules are busy, so that small limits are exceeded.
func (s *simulation) workFor(d time.Duration, interval time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.run(time.Duration(s.rand.Int64N(int64(interval)) + 1))
		s.work()
	}
}

// randomSchedule lets a cluster work under random faults, ends them, and returns the simulation and
// the names of the faults.
func randomSchedule(t testing.TB, seed uint64) (s *simulation, names []string) {
	s = newSimulation(t, seed, 1+rand.New(rand.NewPCG(seed, 3)).IntN(12))
	if s.rand.IntN(3) > 0 { // small limits are exceeded often
		log, window := uint64(1+s.rand.IntN(30)), time.Duration(1+s.rand.IntN(15))*time.Second
		digestBytes, verifyBytes, listed, peers := 1+s.rand.IntN(200), 150+s.rand.IntN(300), s.rand.IntN(12), s.rand.IntN(6)
		s.configure = func(n *presence.Node) { presence.SetLimits(n, log, window, digestBytes, verifyBytes, listed, peers) }
		s.chunk = 60 + s.rand.IntN(500)
	}
	for range 2 + s.rand.IntN(4) {
		s.start()
	}
	interval := time.Duration(20+s.rand.IntN(500)) * time.Millisecond
	s.workFor(5*time.Second, interval)
	all := faults()
	var ends []func()
	for range 1 + s.rand.IntN(4) {
		f := all[s.rand.IntN(len(all))]
		names = append(names, f.name)
		n := s.anyNode()
		s.log("%s at %s", f.name, n.name)
		end := f.begin(s, n)
		s.workFor(time.Duration(s.rand.Int64N(int64(10*time.Second))), interval)
		if s.rand.IntN(8) == 0 {
			s.workFor(70*time.Second, interval)
		}
		if s.rand.IntN(2) == 0 {
			ends = append(ends, end) // overlaps the next one
		} else {
			end()
			s.log("end of %s", f.name)
		}
	}
	for _, end := range slices.Backward(ends) {
		end()
	}
	for _, n := range s.order {
		if n.paused {
			s.run(130 * time.Second)
			break
		}
	}
	s.log("end of all faults")
	return s, names
}

// schedules is the number of random schedules.
func schedules() uint64 { return testscale.Tiers[uint64](40, 40, 200) }

func TestNode_ConvergesWithinFiveSecondsAfterFaults(t *testing.T) {
	start := time.Now()
	for seed := uint64(0); seed < schedules() || time.Since(start) < testscale.Soak(); seed++ {
		s, names := randomSchedule(t, seed)
		s.run(5 * time.Second)
		require.Empty(t, s.difference(), "seed %d: %v", seed, names)
		if !slices.Contains(names, "corruption") {
			for _, n := range s.order {
				require.Zero(t, n.node.Repairs(), "seed %d: %v: checksums hide a defect", seed, names)
			}
		}
	}
}

func TestNode_ExchangesOnlyHeartbeatsWhenNothingChanges(t *testing.T) {
	for seed := range schedules() / 10 {
		s, names := randomSchedule(t, seed)
		s.run(10 * time.Second)
		s.resetCount()
		s.run(100 * time.Second)
		require.Zero(t, s.sent().packets, "seed %d: %v: %v", seed, names, s.count)
		require.Empty(t, s.difference(), "seed %d: %v", seed, names)
	}
}
