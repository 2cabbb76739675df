package history_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/history"
)

// This file runs subscribers that ask for the current state on the simulated store, while keys are
// set and removed. It compares the values that a subscriber has with those of a model after every
// step: at the position of the subscriber, they are equal.

// A stateModel knows the value of every key at every position.
type stateModel struct {
	mu       sync.Mutex
	values   map[broker.Position]map[string]string
	previous map[string]string // the epoch before an epoch, from which it continues
}

// at returns the values at a position. A position that an epoch has inherited is one of an earlier
// epoch, too.
func (m *stateModel) at(p broker.Position) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if values, ok := m.values[p]; ok || p.Epoch == "" {
			return values
		}
		p.Epoch = m.previous[p.Epoch]
	}
}

// A stateStore is a simulated store with its model.
type stateStore struct {
	*simStore

	model *stateModel
}

func newStateStore(seed uint64, keep int) stateStore {
	m := &stateModel{previous: map[string]string{}}
	m.values = map[broker.Position]map[string]string{{Epoch: "e0"}: {}}
	return stateStore{newSimStore(seed, keep), m}
}

// set sets or removes a key. Its calls must not be concurrent.
func (s stateStore) set(key, value string, removed bool) {
	s.mu.Lock()
	values := maps.Clone(s.model.at(broker.Position{Epoch: s.epoch, Offset: s.top}))
	at := broker.Position{Epoch: s.epoch, Offset: s.top + 1}
	s.mu.Unlock()
	if values[key] = value; removed {
		delete(values, key)
	}
	s.model.mu.Lock()
	s.model.values[at] = values
	s.model.mu.Unlock()
	s.append(value, key, removed)
}

func (s stateStore) failOver(lose int) {
	s.simStore.failOver(lose)
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	s.model.previous[s.epoch] = s.previous.Epoch
}

// A stateNode has a sequencer and subscribers.
type stateNode struct {
	t       *testing.T
	store   stateStore
	session *simSession
	keepers map[*keeper]struct{} // guarded by the sequencer's lock
}

// A keeper is a subscriber that keeps the value of each key.
type keeper struct {
	values   map[string]string
	position broker.Position
	complete bool // the values are those at the position

	joins, states, merged, recovered, repaired int
}

func (k *keeper) receive(t *testing.T, s stateStore, p broker.Publication) {
	require.Equal(t, k.position.Offset+1, p.Position.Offset, "an offset was skipped or repeated without notice")
	k.position.Offset = p.Position.Offset
	k.apply(p)
	k.check(t, s)
}

func (k *keeper) apply(p broker.Publication) {
	if k.values[p.StateKey] = string(p.Packet); p.Removed {
		delete(k.values, p.StateKey)
	}
}

func (k *keeper) check(t *testing.T, s stateStore) {
	if k.complete {
		require.Equal(t, s.model.at(k.position), k.values, "at %v", k.position)
	}
}

func (k *keeper) lose(t *testing.T, s stateStore, l history.Loss) {
	unchanged := !l.Reset && l.Epoch != "" && l.EndedAt >= k.position.Offset
	k.complete = k.complete && unchanged
	k.position = l.Position
	k.check(t, s)
}

func newStateNode(t *testing.T, s stateStore) *stateNode {
	n := &stateNode{t: t, store: s, keepers: map[*keeper]struct{}{}}
	n.session = s.connect(history.Sink{
		Deliver: func(p broker.Publication) {
			for k := range n.keepers {
				k.receive(t, s, p)
			}
		},
		Lost: func(l history.Loss) {
			for k := range n.keepers {
				k.lose(t, s, l)
			}
		},
	})
	return n
}

// join continues a subscriber on the node, with the state if it has no complete values. It reports
// false if the topic has changed too much.
func (n *stateNode) join(k *keeper) bool {
	var since broker.Position
	if k.complete {
		since = k.position
	}
	var state []broker.Publication
	activated := 0
	prepare := func(read []broker.Publication) error {
		state = read
		return nil
	}
	err := n.session.seq.JoinState(n.t.Context(), since, 100, prepare, func(j history.Joined) {
		activated++
		n.keepers[k] = struct{}{}
		k.begin(n, since, j, state)
	})
	if err != nil {
		require.Equal(n.t, errors.Unavailable, errors.CodeOf(err))
		require.Zero(n.t, activated)
		return false
	}
	require.Equal(n.t, 1, activated)
	return true
}

// begin handles the answer to a join.
func (k *keeper) begin(n *stateNode, since broker.Position, j history.Joined, state []broker.Publication) {
	k.joins++
	at := broker.Position{Epoch: j.Position.Epoch, Offset: j.Position.Offset - uint64(len(j.Publications))}
	if j.State {
		require.Equal(n.t, since.Epoch == "", j.Recovered)
		k.values = map[string]string{}
		offset := uint64(0)
		for _, p := range state {
			require.Greater(n.t, p.Position.Offset, offset, "the offsets of a state ascend")
			require.LessOrEqual(n.t, p.Position.Offset, at.Offset)
			offset = p.Position.Offset
			k.apply(p)
		}
		k.states++
		k.merged += len(j.Publications)
	} else {
		require.True(n.t, j.Recovered)
		k.recovered++
		k.complete = j.Ended == nil || j.Ended.Offset >= since.Offset
	}
	k.complete = k.complete || j.State
	k.position = at
	k.check(n.t, n.store)
	for _, p := range j.Publications {
		k.receive(n.t, n.store, p)
	}
	require.Equal(n.t, j.Position, k.position)
}

// repair asks for the state again if the keeper has lost publications.
func (n *stateNode) repair(k *keeper) {
	complete := true
	n.session.seq.Locked(func() { complete = k.complete })
	if !complete && n.join(k) {
		k.repaired++
	}
}

func (n *stateNode) leave(k *keeper) {
	n.session.seq.Locked(func() { delete(n.keepers, k) })
}

func TestSequencer_JoinersHaveTheStateOfTheirPosition(t *testing.T) {
	for seed := range uint64(15) {
		for keep := 1; keep <= 3; keep++ {
			for _, failovers := range []bool{false, true} {
				t.Run(fmt.Sprintf("history of %d, failovers %v, seed %d", keep, failovers, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { simulateState(t, seed, keep, failovers) })
				})
			}
		}
	}
}

func simulateState(t *testing.T, seed uint64, keep int, failovers bool) {
	const publications, clients, keys = 1000, 10, 6
	store := newStateStore(seed, keep)
	rng := rand.New(rand.NewPCG(seed, 3))
	nodes := []*stateNode{newStateNode(t, store), newStateNode(t, store), newStateNode(t, store)}
	var running sync.WaitGroup
	stop := make(chan struct{})
	keepers := make([]*keeper, clients)
	failed := make([]int, clients)
	for i := range keepers {
		keepers[i] = new(keeper)
		own := rand.New(rand.NewPCG(seed, uint64(10+i)))
		running.Go(func() { failed[i] = moveState(nodes, keepers[i], own, stop) })
	}
	for n := range publications {
		store.set(fmt.Sprint("key ", rng.IntN(keys)), fmt.Sprint(n), rng.IntN(3) == 0)
		time.Sleep(time.Duration(rng.IntN(12)) * time.Millisecond)
		if failovers && rng.IntN(150) == 0 {
			store.failOver(rng.IntN(keep + 1))
			if rng.IntN(4) == 0 {
				store.failOver(1) // the store remembers only the end of this epoch
			}
		}
	}
	store.mu.Lock()
	store.healthy = true
	store.mu.Unlock()
	close(stop)
	running.Wait()
	time.Sleep(30 * time.Second) // the idle check finds what was lost last
	for _, n := range nodes {
		for k := range n.keepers {
			n.repair(k)
		}
	}
	all := keeper{}
	errs := 0
	end := broker.Position{Epoch: store.epoch, Offset: store.top}
	for i, k := range keepers {
		require.True(t, k.complete)
		require.Equal(t, end, k.position)
		require.Equal(t, store.model.at(end), k.values)
		all.states += k.states
		all.merged += k.merged
		all.repaired += k.repaired
		all.recovered += k.recovered
		errs += failed[i]
	}
	for _, n := range nodes {
		n.session.seq.Close()
	}
	time.Sleep(time.Second) // reads that have begun end
	for _, fault := range []string{"publication lost", "publication repeated", "read failed", "answer delayed"} {
		assert.Positive(t, store.faults[fault], fault)
	}
	assert.Greater(t, all.states, 50, "joins with the state")
	assert.Greater(t, all.merged, 10, "publications between the state and the activation")
	assert.Greater(t, all.repaired, 5, "losses that the state has repaired")
	assert.Less(t, errs*4, all.states, "joins that failed") // a tenth of the publications are lost
}

// moveState lets a subscriber join, leave and return on any node, with and without its position,
// until stop is closed. It ends subscribed. It returns how often a join has failed.
func moveState(nodes []*stateNode, k *keeper, rng *rand.Rand, stop chan struct{}) (failed int) {
	for {
		node := nodes[rng.IntN(len(nodes))]
		for !node.join(k) {
			failed++
		}
		for range rng.IntN(4) {
			time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
			node.repair(k)
		}
		select {
		case <-stop:
			return failed
		default:
		}
		node.leave(k)
		if rng.IntN(2) == 0 {
			k.complete = false // a new client
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
	}
}
