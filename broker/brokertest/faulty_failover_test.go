package brokertest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestFaulty_FailOverLosesTheLastChanges(t *testing.T) {
	forSeeds(t, 5, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		for i := range 3 {
			appendTo(t, a, "news", fmt.Sprint(i+1))
		}
		version, err := a.StoreValue(t.Context(), "key", []byte("old"), 0, time.Hour)
		require.NoError(t, err)
		lost, err := a.StoreValue(t.Context(), "key", []byte("new"), version, time.Hour)
		require.NoError(t, err)
		_, err = a.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("4"), Retention: broker.Retention{Messages: 1}, Fence: 7, Last: true, IdempotencyKey: "4", StateKey: "state"})
		require.NoError(t, err)
		before := readNews(t, a)
		assert.True(t, before.Closed)

		assert.Equal(t, 2, s.FailOver(2))
		time.Sleep(5 * time.Second)
		page := readNews(t, a)
		assert.Equal(t, broker.Position{Epoch: before.Position.Epoch, Offset: 3}, page.Previous)
		assert.Equal(t, uint64(3), page.Position.Offset)
		assert.NotEqual(t, before.Position.Epoch, page.Position.Epoch)
		assert.False(t, page.Closed)
		assert.Equal(t, "1 2 3", packets(page), "the replica has what the lost Append has removed")
		value, err := a.LoadValue(t.Context(), "key")
		require.NoError(t, err)
		assert.Equal(t, broker.Value{Data: []byte("old"), Version: version}, value)
		state, err := a.ReadState(t.Context(), broker.StateQuery{Topic: "news"})
		require.NoError(t, err)
		assert.Empty(t, state.Publications)

		again, err := a.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("5"), Fence: 1, IdempotencyKey: "4", Retention: broker.Retention{Messages: 100}})
		require.NoError(t, err)
		assert.Equal(t, broker.Appended{Position: broker.Position{Epoch: page.Position.Epoch, Offset: 4}}, again, "its key and its fence are lost, too")
		next, err := a.StoreValue(t.Context(), "key", []byte("newer"), version, time.Hour)
		require.NoError(t, err)
		assert.NotEqual(t, lost, next)
		assert.Equal(t, "1 2 3 4 5", packets(broker.Page{Publications: s.Stored("news")}))
		assert.Equal(t, "4", packets(broker.Page{Publications: s.Dropped("news")}))
		assert.Equal(t, []string{"news"}, s.Topics())
	})
}

// TestFaulty_FailOverKeepsDurablePublications appends one between others.
func TestFaulty_FailOverKeepsDurablePublications(t *testing.T) {
	forSeeds(t, 5, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		appendTo(t, a, "news", "1")
		_, err := a.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("2"), Durability: broker.Durability{Replicas: 1}, Retention: broker.Retention{Messages: 10}})
		require.NoError(t, err)
		appendTo(t, a, "news", "3")
		assert.Equal(t, 1, s.FailOver(3))
		assert.Zero(t, s.FailOver(3))
		time.Sleep(5 * time.Second)
		assert.Equal(t, "1 2", packets(readNews(t, a)))
		_, err = a.Append(t.Context(), broker.Append{Topic: "news", Durability: broker.Durability{Replicas: -1}})
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	})
}

// TestFaulty_FailOverConfirmsNothing fails over before the answer of an Append with a Durability.
func TestFaulty_FailOverConfirmsNothing(t *testing.T) {
	outcomes := map[string]int{}
	forSeeds(t, 100, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		time.AfterFunc(3*time.Millisecond, func() { s.FailOver(1) })
		_, err := a.Append(within(t, time.Minute), broker.Append{Topic: "news", Durability: broker.Durability{Replicas: 1}})
		time.Sleep(5 * time.Second)
		outcomes[fmt.Sprintf("%s, dropped %d of %d", errors.CodeOf(err), len(s.Dropped("news")), len(s.Stored("news")))]++
	})
	assert.Positive(t, outcomes[", dropped 0 of 1"])
	assert.Positive(t, outcomes["OUTCOME_UNKNOWN, dropped 1 of 1"])
	assert.Zero(t, outcomes[", dropped 1 of 1"], "%v", outcomes)
}

func TestFaulty_Restart(t *testing.T) {
	forSeeds(t, 5, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		a.Follow("news")
		appendTo(t, a, "news", "1")
		_, err := a.StoreValue(t.Context(), "key", []byte("value"), 0, time.Hour)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		before := readNews(t, a)
		j.take()
		s.Restart()
		time.Sleep(5 * time.Second)
		assert.Contains(t, j.take(), "a following")
		assert.Equal(t, before, readNews(t, a))

		s.RestartEmpty()
		time.Sleep(5 * time.Second)
		assert.Contains(t, j.take(), "a following")
		after := readNews(t, a)
		assert.NotEqual(t, before.Position.Epoch, after.Position.Epoch)
		assert.Equal(t, broker.Page{Position: broker.Position{Epoch: after.Position.Epoch}}, after)
		assert.Len(t, s.Dropped("news"), 1)
		assert.Zero(t, s.Usage().Values)
		assert.Zero(t, s.Usage().Bytes)
	})
}

func TestFaulty_Usage(t *testing.T) {
	forSeeds(t, 3, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		a.Follow("news")
		a.Follow("news")
		keep := broker.Retention{Messages: 1, Age: time.Hour}
		for _, key := range []string{"k", "k", "l", ""} {
			_, err := a.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("12345"), StateKey: key, Retention: keep})
			require.NoError(t, err)
		}
		_, err := a.StoreValue(t.Context(), "key", []byte("value"), 0, time.Hour)
		require.NoError(t, err)
		u := s.Usage()
		assert.GreaterOrEqual(t, u.Bytes, int64(6+6+5))
		u.Bytes = 0
		assert.Equal(t, brokertest.StoreUsage{Nodes: 1, Following: 1, Values: 1, ValueBytes: 5}, u)
		a.Unfollow("news")
		time.Sleep(2 * time.Hour)
		assert.Equal(t, brokertest.StoreUsage{Nodes: 1}, s.Usage())
	})
}

// TestFaulty_RandomScheduleKeepsPositions lets nodes publish during all faults, and compares what
// they know with what the store has recorded.
func TestFaulty_RandomScheduleKeepsPositions(t *testing.T) {
	occurred, runs := map[string]int{}, uint64(0)
	forSeeds(t, testscale.Tiers[uint64](20, 50, 1000), func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		runs++
		rng := rand.New(rand.NewPCG(runs, 3))
		var writers sync.WaitGroup
		all := make([]*scheduledNode, 3)
		for i := range all {
			all[i] = &scheduledNode{name: fmt.Sprint("node ", i), published: map[broker.Position]string{}}
			all[i].connect(s)
		}
		for i, n := range all {
			own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
			writers.Go(func() { n.publish(t, own) })
		}
		for range 12 {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			disturb(s, rng, all[rng.IntN(len(all))].name)
		}
		writers.Wait()
		s.SetFaults(brokertest.StoreFaults{})
		for _, n := range all {
			s.Heal(n.name)
			s.Resume(n.name)
		}
		time.Sleep(time.Minute)
		var last journal
		page := readNews(t, last.connect(t, s, "reader"))
		checkPositions(t, s, page)
		for _, n := range all {
			n.check(t, s, page)
			_ = n.Close(within(t, time.Minute))
		}
		for name, n := range s.Occurred() {
			occurred[name] += n
		}
	})
	for _, name := range []string{
		"cut off", "healed", "paused", "resumed", "failed over", "restarted", "restarted empty", "lost answer", "lost delivery",
		"repeated delivery", "read before answer", "delivered before answer",
	} {
		assert.Positive(t, occurred[name], "%s: %v", name, occurred)
	}
}

func disturb(s *brokertest.FaultyStore, rng *rand.Rand, name string) {
	switch rng.IntN(16) {
	case 0, 1:
		s.CutOff(name)
	case 2, 3, 4:
		s.Heal(name)
	case 5, 6:
		s.Pause(name)
	case 7, 8, 9:
		s.Resume(name)
	case 10, 11:
		s.FailOver(rng.IntN(4))
	case 12:
		s.Restart()
	case 13:
		if rng.IntN(4) == 0 {
			s.RestartEmpty()
		}
	case 14:
		s.SetFaults(brokertest.StoreFaults{})
	default:
		s.SetFaults(brokertest.StoreFaults{LostAnswers: 0.2, LostDeliveries: 0.2, Slow: time.Duration(rng.IntN(3)) * 100 * time.Millisecond})
	}
}

// A scheduledNode publishes, and records what it knows.
type scheduledNode struct {
	broker.HistoryNode
	name     string
	attempts []attempted

	mu         sync.Mutex
	published  map[broker.Position]string
	followedAt time.Time
	last       uint64 // the highest offset that was delivered in the last epoch
	epoch      string
}

type attempted struct {
	packet string
	result broker.Appended
	err    error
}

func (n *scheduledNode) connect(s *brokertest.FaultyStore) {
	n.HistoryNode = s.Node(n.name).ConnectHistory(broker.Handler{}, broker.HistoryHandler{
		Published: func(_ string, p broker.Publication) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.epoch != p.Position.Epoch {
				n.epoch, n.last = p.Position.Epoch, 0
			}
			n.published[p.Position] = string(p.Packet)
			n.last = max(n.last, p.Position.Offset)
		},
		Following: func(string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.followedAt = time.Now()
		},
	})
	n.Follow("news")
}

func (n *scheduledNode) publish(t *testing.T, rng *rand.Rand) {
	for i := range 40 {
		packet := fmt.Sprintf("%s.%d", n.name, i)
		var a attempted
		a.packet = packet
		a.result, a.err = n.Append(within(t, 2*time.Second), broker.Append{Topic: "news", Packet: []byte(packet), Retention: broker.Retention{Messages: 10_000}})
		n.attempts = append(n.attempts, a)
		_, _ = n.Read(within(t, time.Second), broker.Query{Topic: "news", Limit: 10})
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
}

// check compares what the node knows with what the store has recorded.
func (n *scheduledNode) check(t *testing.T, s *brokertest.FaultyStore, page broker.Page) {
	truth, stored := map[broker.Position]string{}, map[string][]broker.Position{}
	for _, p := range s.Stored("news") {
		truth[p.Position] = string(p.Packet)
		stored[string(p.Packet)] = append(stored[string(p.Packet)], p.Position)
	}
	for _, a := range n.attempts {
		positions := stored[a.packet]
		switch {
		case a.err == nil:
			assert.Equal(t, []broker.Position{a.result.Position}, positions)
		case errors.CodeOf(a.err) != errors.OutcomeUnknown:
			assert.Empty(t, positions, "%v", a.err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.False(t, n.followedAt.IsZero())
	for position, packet := range n.published {
		assert.Equal(t, truth[position], packet)
	}
	for _, p := range page.Publications {
		if p.At.After(n.followedAt) && n.published[p.Position] == "" {
			assert.Equal(t, p.Position.Epoch, n.epoch)
			assert.Greater(t, n.last, p.Position.Offset, "neither delivered, nor shown by a later one, nor reported")
		}
	}
}

// checkPositions compares all that was ever stored with what is stored at last.
func checkPositions(t *testing.T, s *brokertest.FaultyStore, page broker.Page) {
	dropped, used := map[broker.Position]bool{}, map[broker.Position]bool{}
	for _, p := range s.Dropped("news") {
		dropped[p.Position] = true
	}
	var left []broker.Publication
	for _, p := range s.Stored("news") {
		assert.False(t, used[p.Position], "%v was used twice", p.Position)
		if used[p.Position] = true; !dropped[p.Position] {
			left = append(left, p)
		}
	}
	assert.Equal(t, left, page.Publications)
	for i, p := range page.Publications {
		assert.Equal(t, uint64(i+1), p.Position.Offset)
	}
	assert.Equal(t, uint64(len(left)), page.Position.Offset)
}
