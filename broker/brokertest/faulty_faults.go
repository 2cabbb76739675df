package brokertest

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// StoreFaults are what a [FaultyStore] does wrong by chance. The zero value is nothing.
// Probabilities are between 0 and 1.
type StoreFaults struct {
	// LostAnswers is the probability that a call, or its answer, is lost. Append, StoreValue and
	// PatchValue then return OUTCOME_UNKNOWN, whether or not they are processed, before or after
	// that; or UNAVAILABLE if they never are, as reads do.
	LostAnswers float64

	// LostDeliveries is the probability that a publication does not reach one of its nodes. A
	// missing offset shows that, or HistoryHandler.Following is called within about five seconds.
	LostDeliveries float64

	// LostPackets and RepeatedPackets are the probabilities that a packet between nodes (Publish,
	// presence, heartbeats) is lost, or arrives twice, at one of them.
	LostPackets, RepeatedPackets float64

	// Slow is how much longer everything takes at most: each call, answer, delivery and packet.
	Slow time.Duration

	// Full makes Append, StoreValue and PatchValue fail as the contract says of a full store.
	Full bool
}

// SetFaults replaces the faults that happen by chance from now on.
func (s *FaultyStore) SetFaults(f StoreFaults) {
	s.network.SetChances(enginetest.Chances{Lose: f.LostPackets, Repeat: f.RepeatedPackets, Slow: f.Slow})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.data.full = f, f.Full
	if f != (StoreFaults{}) {
		s.occurred["faults set"]++
	}
}

// CutOff interrupts the connections of the nodes of that name to the store and to other nodes until
// Heal. Their calls fail or wait until their context is done, and what is published for them is
// lost. Calls that are on their way are processed or not, and answered or not.
func (s *FaultyStore) CutOff(name string) {
	s.onHost(name, "cut off", func(h *faultyHost) {
		h.cutOff = true
		for _, n := range s.nodesOfLocked(h) {
			n.interruptLocked()
		}
	})
}

// Heal ends CutOff: within about a second, the nodes reach the store again, and Following,
// Subscribed and MessagesLost are called as after every interruption.
func (s *FaultyStore) Heal(name string) {
	s.onHost(name, "healed", func(h *faultyHost) {
		h.cutOff = false
		for _, n := range s.nodesOfLocked(h) {
			n.reconnectSoonLocked()
		}
	})
}

// Pause stops what the nodes of that name send and receive until Resume, as when their process does
// not run. What is sent to them waits. Their own code runs on, and its calls return when their
// context is done.
func (s *FaultyStore) Pause(name string) {
	s.onHost(name, "paused", func(h *faultyHost) {
		h.paused = true
		for _, n := range s.nodesOfLocked(h) {
			n.disturbLocked()
		}
	})
}

// Resume ends Pause.
func (s *FaultyStore) Resume(name string) {
	s.onHost(name, "resumed", func(h *faultyHost) {
		h.paused = false
		for _, n := range s.nodesOfLocked(h) {
			held := n.held
			n.held = nil
			for _, f := range held {
				f()
			}
			n.disturbLocked()
		}
	})
}

// Crash ends the nodes of that name as the end of their process does: nothing more is stored,
// answered or delivered for them, and other nodes find out by their silence. Calls that wait return
// when their context is done. Close must still be called, to end what is left of the node in this
// process; other nodes do not learn of it.
func (s *FaultyStore) Crash(name string) {
	var crashed []*faultyNode
	s.onHost(name, "crashed", func(h *faultyHost) {
		crashed = s.nodesOfLocked(h)
		for _, n := range crashed {
			n.crashed = true
			for _, c := range n.calls {
				c.hangs = true
			}
			n.removeLocked()
		}
	})
	for _, n := range crashed {
		if pubsub, ok := n.Node.(*cluster.Node); ok {
			pubsub.Kill()
		}
		n.gate.Close()
	}
}

// onHost calls f with the host of a name, and counts what happens.
func (s *FaultyStore) onHost(name, what string, f func(*faultyHost)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurred[what]++
	h := s.hosts[name]
	if h == nil {
		h = &faultyHost{}
		s.hosts[name] = h
	}
	f(h)
}

func (s *FaultyStore) nodesOfLocked(h *faultyHost) (nodes []*faultyNode) {
	for _, n := range s.nodes {
		if n.host == h {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// FailOver lets a replica take over that lacks the last changes: as many calls of Append,
// StoreValue and PatchValue as lose says, but none that was acknowledged with a
// [broker.Durability]. All topics have a new epoch, and the connections of all nodes are
// interrupted for up to about a second. It returns how many changes were lost.
func (s *FaultyStore) FailOver(lose int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurred["failed over"]++
	s.interruptAllLocked()
	return s.data.failOver(lose)
}

// Restart restarts the store with all its data: the connections of all nodes are interrupted for up
// to about a second.
func (s *FaultyStore) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurred["restarted"]++
	s.interruptAllLocked()
}

// RestartEmpty restarts the store without any data, even what was acknowledged with a
// [broker.Durability]. Topics begin in a new epoch, and do not know the previous one.
func (s *FaultyStore) RestartEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurred["restarted empty"]++
	s.interruptAllLocked()
	s.data.restartEmpty()
}

func (s *FaultyStore) interruptAllLocked() {
	for _, n := range s.nodes {
		n.interruptLocked()
		n.reconnectSoonLocked()
	}
}

// interruptLocked ends the connection of a node.
func (n *faultyNode) interruptLocked() {
	s := n.store
	n.up = false
	n.connection++
	for _, u := range n.subsLocked() {
		u.breakLocked()
	}
	for _, c := range slices.Clone(n.calls) {
		switch {
		case c.hangs:
		case c.processed && s.coinLocked():
			s.answerLocked(c)
		default:
			c.dropped = !c.processed
			s.breakLocked(c)
		}
	}
	n.disturbLocked()
}

// reconnectSoonLocked connects a node again after some time, unless its host is cut off or it is
// interrupted before that.
func (n *faultyNode) reconnectSoonLocked() {
	s, connection := n.store, n.connection
	s.afterLocked(s.delayLocked()+s.delayLocked(), func() {
		if !n.up && !n.host.cutOff && n.connection == connection {
			n.reconnectLocked()
		}
	})
}

func (n *faultyNode) reconnectLocked() {
	n.up = true
	for _, c := range slices.Clone(n.calls) {
		if c.hangs && !n.crashed {
			c.hangs = false
			c := c
			n.store.afterLocked(n.store.delayLocked(), func() { n.store.endLocked(c, n.store.brokenLocked(c)) })
		}
	}
	for _, u := range n.subsLocked() {
		u.restoreLocked()
	}
	n.disturbLocked()
}

// disturbLocked disturbs the half without a history like that with one.
func (n *faultyNode) disturbLocked() {
	n.store.network.Update(n.Name(), func(f *enginetest.Faults) {
		f.Disconnect, f.FailPublish, f.Pause = !n.up, !n.up, n.host.paused
	})
}
