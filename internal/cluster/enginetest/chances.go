package enginetest

import (
	"math/rand/v2"
	"time"
)

// Chances are what happens by chance to messages of a network that has a seed. The zero value only
// delays them.
type Chances struct {
	Lose   float64       // the probability that a message is lost on its way to a node
	Repeat float64       // the probability that it arrives twice
	Slow   time.Duration // how much longer it is in transit at most
}

// Randomize makes the network delay messages and confirmations by times that are drawn from a seed:
// some milliseconds, sometimes some hundred. A message overtakes others, except those that its node
// has published in its partition. It must be called before the first node is connected.
func (n *Network) Randomize(seed uint64) {
	n.rng = rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a simulation
}

// SetChances replaces the chances of a network with a seed.
func (n *Network) SetChances(c Chances) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.chances = c
}

// happensLocked decides whether something happens that has a probability.
func (n *Network) happensLocked(probability float64) bool {
	return probability > 0 && n.rng.Float64() < probability
}

// delayLocked returns how long something takes: less than the time in which nodes expect heartbeats
// and probes, unless Chances.Slow is more.
func (n *Network) delayLocked() time.Duration {
	most := 5 * time.Millisecond
	switch i := n.rng.IntN(32); {
	case i == 0:
		most = 300 * time.Millisecond
	case i < 6:
		most = 50 * time.Millisecond
	}
	d := time.Duration(n.rng.Int64N(int64(most)))
	if n.chances.Slow > 0 {
		d += time.Duration(n.rng.Int64N(int64(n.chances.Slow)))
	}
	return d
}

// A lane is the messages of a node in a partition, which do not overtake each other.
type lane struct {
	from      *Node
	partition int
}

// arriveLocked queues a message of another node after some time. It needs no goroutine meanwhile,
// so that none is left when a test ends.
func (n *Node) arriveLocked(from *Node, partition int, receive func()) {
	l, now := lane{from, partition}, time.Now()
	at := now.Add(n.network.delayLocked() + from.Delay)
	if last := n.arrived[l]; !at.After(last) {
		at = last.Add(1)
	}
	n.arrived[l] = at
	time.AfterFunc(at.Sub(now), func() {
		n.network.mu.Lock()
		defer n.network.mu.Unlock()
		n.addLocked(receive)
	})
}

// laterLocked calls f with the network's lock held, after some time if the network has a seed.
func (n *Network) laterLocked(f func()) {
	if n.rng == nil {
		f()
		return
	}
	time.AfterFunc(n.delayLocked(), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	})
}

// pauseLocked begins or ends a pause, if the fault has changed.
func (n *Node) pauseLocked(was bool) {
	switch {
	case n.Pause && !was:
		n.resumed = make(chan struct{})
	case !n.Pause && was:
		close(n.resumed)
		n.resumed = nil
		for _, f := range n.held {
			n.queue.Add(f)
		}
		n.held = nil
	}
}

// addLocked queues a call of events.
func (n *Node) addLocked(f func()) {
	if n.Pause {
		n.held = append(n.held, f)
		return
	}
	n.queue.Add(f)
}
