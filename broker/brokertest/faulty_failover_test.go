package brokertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
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
