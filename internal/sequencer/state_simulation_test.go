package sequencer_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/testscale"
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
	conn    *simConn
	keepers map[*keeper]struct{} // guarded by the sequencer's lock
}

// A keeper is a subscriber that keeps the value of each key.
type keeper struct {
	values   map[string]string
	position broker.Position
	complete bool // the values are those at the position
	rest     *sequencer.StateRest
	loaded   map[string]bool // keys that the state has contained
	restAt   uint64          // the offset of the state
	missed   bool            // something that may have changed the values, since the state began
	rng      *rand.Rand
	t        *testing.T

	states, parts, left, merged, recovered, repaired int
}

// fail reports the first failure. It does not end the goroutine, which may be that of a sequencer.
func fail(t *testing.T, format string, args ...any) {
	if !t.Failed() {
		t.Errorf(format, args...)
	}
}

func (k *keeper) receive(t *testing.T, s stateStore, p broker.Publication) {
	if p.Position.Offset != k.position.Offset+1 {
		fail(t, "offset %d was skipped or repeated without notice after %v", p.Position.Offset, k.position)
	}
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
	if want := s.model.at(k.position); k.complete && !maps.Equal(want, k.values) {
		fail(t, "at %v the values are %v and should be %v", k.position, k.values, want)
	}
}

func (k *keeper) lose(t *testing.T, s stateStore, l sequencer.Loss) {
	unchanged := !l.Reset && l.Epoch != "" && l.EndedAt >= k.position.Offset
	k.complete = k.complete && unchanged
	k.missed = k.missed || !unchanged
	k.position = l.Position
	k.check(t, s)
}

func newStateNode(t *testing.T, s stateStore) *stateNode {
	n := &stateNode{t: t, store: s, keepers: map[*keeper]struct{}{}}
	n.conn = s.connect(sequencer.Sink{
		Deliver: func(p broker.Publication) {
			for k := range n.keepers {
				k.receive(t, s, p)
			}
		},
		Lost: func(l sequencer.Loss) {
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
	n.conn.seq.WithLock(func() { // a subscriber that repairs its state may lose more meanwhile
		if k.complete {
			since = k.position
		}
	})
	var state []broker.Publication
	activated := 0
	prepare := func(read []broker.Publication) error {
		state = read
		return nil
	}
	err := n.conn.seq.JoinState(n.t.Context(), since, sequencer.NewCatchup(n.conn, 100, 1<<20).Topic(100), 100, prepare, func(j sequencer.Joined) {
		activated++
		n.keepers[k] = struct{}{}
		k.begin(n, since, j, state)
	})
	if err == nil && activated != 1 || err != nil && (activated != 0 || errors.CodeOf(err) != errors.Unavailable) {
		fail(n.t, "activated %d times with the error %v", activated, err)
	}
	return err == nil && (k.rest == nil || n.loadRest(k))
}

// loadRest receives the parts after the first one, a few publications at a time. It reports false if the
// store fails over meanwhile, or if the subscriber leaves.
func (n *stateNode) loadRest(k *keeper) bool {
	defer k.rest.Close()
	for !k.rest.Complete() {
		k.parts++
		_, err := k.rest.Read(n.t.Context())
		if err == nil {
			time.Sleep(time.Duration(k.rng.IntN(30)) * time.Millisecond) // there is no room
			err = k.rest.Send(k.loadSome)
		}
		if err != nil && errors.CodeOf(err) != errors.Unavailable {
			fail(n.t, "the state ended with the error %v", err)
		}
		if left := err == nil && k.rng.IntN(20) == 0; left || err != nil {
			n.leave(k)
			if left {
				k.left++
			}
			return false
		}
	}
	n.conn.seq.WithLock(func() {
		k.complete = !k.missed
		k.check(n.t, n.store)
	})
	return true
}

func (k *keeper) loadSome(part []broker.Publication) int {
	some := part[:k.rng.IntN(len(part)+1)]
	for _, p := range some {
		if p.Position.Offset > k.restAt || k.loaded[p.StateKey] {
			fail(k.t, "a part of the state at %d contains %v, or its key again", k.restAt, p.Position)
		}
		k.loaded[p.StateKey] = true
		k.apply(p)
	}
	return len(some)
}

// begin handles the answer to a join.
func (k *keeper) begin(n *stateNode, since broker.Position, j sequencer.Joined, state []broker.Publication) {
	at := broker.Position{Epoch: j.Position.Epoch, Offset: j.Position.Offset - uint64(len(j.Publications))}
	if j.Recovered != (j.Rest == nil || since.Epoch == "") {
		fail(n.t, "recovered from %v: %v", since, j)
	}
	k.rest, k.missed = j.Rest, false
	if j.Rest != nil && k.rng.IntN(3) == 0 { // the subscriber has no room for the first part
		at, state, j.Publications = j.Position, nil, nil
		j.Rest.BeginAgain(at)
	}
	if j.Rest != nil {
		k.load(n.t, at, state)
		k.complete = j.Rest.Complete()
		k.states++
		k.merged += len(j.Publications)
	} else {
		k.complete = j.Ended == nil || j.Ended.Offset >= since.Offset
		k.recovered++
	}
	k.position = at
	k.check(n.t, n.store)
	for _, p := range j.Publications {
		k.receive(n.t, n.store, p)
	}
}

// load takes over the state at a position.
func (k *keeper) load(t *testing.T, at broker.Position, state []broker.Publication) {
	k.values, k.loaded, k.restAt, k.t = map[string]string{}, map[string]bool{}, at.Offset, t
	for i, p := range state {
		k.loaded[p.StateKey] = true
		if p.Position.Offset > at.Offset || i > 0 && p.Position.Offset <= state[i-1].Position.Offset {
			fail(t, "the offsets of a state do not ascend to %v: %v", at, state)
		}
		k.apply(p)
	}
}

// repair asks for the state again if the keeper has lost publications, and again if the subscription ends
// before the state is complete.
func (n *stateNode) repair(k *keeper) {
	needed := false
	n.conn.seq.WithLock(func() { needed = !k.complete })
	for needed {
		if n.join(k) {
			k.repaired++
			return
		}
		n.conn.seq.WithLock(func() {
			_, subscribed := n.keepers[k]
			needed = !subscribed
		})
	}
}

func (n *stateNode) leave(k *keeper) {
	n.conn.seq.WithLock(func() { delete(n.keepers, k) })
}

func TestSequencer_JoinersHaveTheStateOfTheirPosition(t *testing.T) {
	for seed := range testscale.Tiers[uint64](2, 3, 10) {
		for _, keep := range []int{1, 2, 3, 100} {
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
	var nodes []*stateNode
	defer time.Sleep(time.Second) // reads that have begun end
	for range 3 {
		n := newStateNode(t, store)
		defer n.conn.seq.Close()
		nodes = append(nodes, n)
	}
	var running sync.WaitGroup
	stop := make(chan struct{})
	keepers := make([]*keeper, clients)
	failed := make([]int, clients)
	for i := range keepers {
		own := rand.New(rand.NewPCG(seed, uint64(10+i)))
		keepers[i] = &keeper{rng: own}
		running.Go(func() { failed[i] = moveState(nodes, keepers[i], own, stop) })
	}
	for n := range publications {
		store.set(fmt.Sprint("key ", rng.IntN(keys)), fmt.Sprint(n), rng.IntN(3) == 0)
		time.Sleep(time.Duration(rng.IntN(12)) * time.Millisecond)
		if failovers && rng.IntN(150) == 0 {
			store.failOver(rng.IntN(min(keep, 5) + 1))
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
		for _, k := range slices.Collect(maps.Keys(n.keepers)) {
			for range 10 {
				n.repair(k)
			}
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
		all.parts += k.parts
		all.repaired += k.repaired
		all.recovered += k.recovered
		errs += failed[i] - k.left
	}
	for _, fault := range []string{"publication lost", "publication repeated", "read failed", "answer delayed"} {
		assert.Positive(t, store.faults[fault], fault)
	}
	assert.Greater(t, all.states, 50, "joins with the state")
	assert.Greater(t, all.parts, 100, "parts after the first one")
	assert.Greater(t, all.merged, 10, "publications between the state and the activation")
	if keep <= 3 {
		assert.Greater(t, all.repaired, 5, "losses that the state has repaired")
	} else {
		assert.Greater(t, all.recovered, 20, "joins that did not need the state")
	}
	assert.Less(t, errs*2, all.states, "joins that failed") // a tenth of the publications are lost
}

// moveState lets a subscriber join, leave and return on any node, with and without its position,
// until stop is closed. It ends subscribed. It returns how often a join has failed.
func moveState(nodes []*stateNode, k *keeper, rng *rand.Rand, stop chan struct{}) (failed int) {
	for {
		node := nodes[rng.IntN(len(nodes))]
		for !node.join(k) {
			if failed++; failed > 1000 {
				return failed
			}
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
