package sequencer_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

func ignoringHandler() broker.Callbacks {
	return broker.Callbacks{
		Receive: func(string, string, []byte) {}, Subscribed: func(string) {}, MessagesLost: func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {}, NodeLeft: func(string) {},
	}
}

func always() bool { return true }

func TestSequencer_WhenAttachedCallsOnceWithThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
		defer func() { require.NoError(t, node.Close(t.Context())) }()
		retention := broker.Retention{Messages: 10}
		stored, err := node.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte("1")})
		require.NoError(t, err)
		s := sequencer.New(sequencer.NewReader(node), "news", retention, sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}})
		var early, late []broker.Position
		s.WhenAttached(always, func(at broker.Position) { early = append(early, at) })
		assert.Empty(t, early)
		s.Following()
		synctest.Wait()
		s.WhenAttached(always, func(at broker.Position) { late = append(late, at) })
		s.Following()
		synctest.Wait()
		s.Close()
		want := []broker.Position{stored.Position}
		assert.Equal(t, want, early)
		assert.Equal(t, want, late)
	})
}

// TestSequencer_WhenAttachedLeavesOutWhatIsOlderThanTheCall calls WhenAttached before, between and after
// publications that arrive before the position is known.
func TestSequencer_WhenAttachedLeavesOutWhatIsOlderThanTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
		defer func() { require.NoError(t, node.Close(t.Context())) }()
		retention := broker.Retention{Messages: 10}
		var delivered []uint64
		s := sequencer.New(sequencer.NewReader(node), "news", retention, sequencer.Sink{
			Deliver: func(p broker.Publication) { delivered = append(delivered, p.Position.Offset) },
			Lost:    func(sequencer.Loss) {},
		})
		defer s.Close()
		var calls []uint64
		for n := range uint64(4) {
			s.WhenAttached(always, func(at broker.Position) {
				assert.Equal(t, n, at.Offset)
				assert.Len(t, delivered, int(n))
				calls = append(calls, at.Offset)
			})
			if n == 3 {
				break
			}
			stored, err := node.Append(t.Context(), broker.Append{Topic: "news", Retention: retention, Packet: []byte("1")})
			require.NoError(t, err)
			s.Stored(broker.Publication{Position: stored.Position, Packet: []byte("1")})
		}
		assert.Empty(t, calls)
		s.Following()
		synctest.Wait()
		assert.Equal(t, []uint64{0, 1, 2, 3}, calls)
	})
}

func TestSequencer_DeliversWhatIsPublishedBeforeItIsAttached(t *testing.T) {
	for _, messages := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			node := memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
			defer func() { require.NoError(t, node.Close(t.Context())) }()
			publish := func(packet string) broker.Publication {
				stored, err := node.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Messages: messages}, Packet: []byte(packet)})
				require.NoError(t, err)
				return broker.Publication{Position: stored.Position, Packet: []byte(packet)}
			}
			publish("before")
			var delivered []string
			s := sequencer.New(sequencer.NewReader(node), "news", broker.Retention{Messages: messages}, sequencer.Sink{
				Deliver: func(p broker.Publication) { delivered = append(delivered, string(p.Packet)) },
				Lost:    func(l sequencer.Loss) { t.Errorf("lost %+v", l) },
			})
			defer s.Close()
			s.Publish(publish("1"))
			s.Publish(publish("2"))
			s.Following()
			synctest.Wait()
			s.Publish(publish("3"))
			assert.Equal(t, []string{"1", "2", "3"}, delivered)
		})
	}
}

// TestSequencer_WhenAttachedForgetsWhatIsNotWanted while the position is not known.
func TestSequencer_WhenAttachedForgetsWhatIsNotWanted(t *testing.T) {
	node := memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
	defer func() { require.NoError(t, node.Close(t.Context())) }()
	s := sequencer.New(sequencer.NewReader(node), "news", broker.Retention{Messages: 10}, sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}})
	defer s.Close()
	attached := make(chan int, 100)
	for i := range 10_000 {
		s.WhenAttached(func() bool { return i%1000 == 0 }, func(broker.Position) { attached <- i })
	}
	assert.LessOrEqual(t, s.Attaching(), 40)
	s.Following()
	for i := range 10 {
		for n := range attached {
			if n%1000 == 0 {
				assert.Equal(t, 1000*i, n)
				break
			}
		}
	}
}
