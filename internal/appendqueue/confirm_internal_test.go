package appendqueue

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A testServer answers confirmations after a time.
type testServer struct {
	mu     sync.Mutex
	answer Confirmation
	delay  time.Duration
	asked  []int // partitions of the round trips
}

func (s *testServer) confirm(d broker.Durability, partition int, limit time.Duration) Confirmation {
	s.mu.Lock()
	s.asked = append(s.asked, partition)
	delay := s.delay
	s.mu.Unlock()
	time.Sleep(min(delay, limit))
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Replicas > 1 && s.answer.Err == nil {
		return Confirmation{Lineage: s.answer.Lineage, Missing: errors.New("1 of 2 replicas have confirmed it")}
	}
	return s.answer
}

func (s *testServer) rounds() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// storedCall returns a call that was stored in a lineage.
func storedCall(ctx context.Context, partition, replicas int, lineage string) *testCall {
	c := &testCall{ctx: ctx, partition: partition, done: make(chan struct{}), confirm: &confirmState{lineage: lineage}}
	c.Durability.Replicas = replicas
	c.Result = broker.Appended{Position: broker.Position{Epoch: "E", Offset: 1}}
	return c
}

func (c *Call[K]) isOver() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func TestConfirmQueue_FailuresAreUnknownOutcomes(t *testing.T) {
	for name, answer := range map[string]Confirmation{
		"no answer":      {Err: errors.New("EOF")},
		"another master": {Lineage: "other"},
		"unknown master": {},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newConfirmQueue[string]((&testServer{answer: answer}).confirm)
			c := storedCall(t.Context(), 0, 1, "L")
			q.add(c)
			q.running.Wait()
			require.True(t, c.isOver(), name)
			assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(c.Err), name)
			assert.Zero(t, c.Result, name)
			assert.Empty(t, q.byKey, name)
		})
	}
}

// TestConfirmQueue_EndsByItself lets a replica stay away. Nothing waits for ever.
func TestConfirmQueue_EndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &testServer{answer: Confirmation{Lineage: "L", Missing: errors.New("0 of 1 replicas")}, delay: time.Hour}
		q := newConfirmQueue[string](server.confirm)
		began := time.Now()
		patient := storedCall(t.Context(), 0, 1, "L")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		gone := storedCall(ctx, 0, 1, "L")
		q.add(gone)
		q.running.Wait()
		assert.Empty(t, server.rounds(), "no publication waits")
		q.add(patient)
		<-patient.done
		assert.Equal(t, confirmTimeout, time.Since(began))
		assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(patient.Err))
		require.ErrorContains(t, patient.Err, "0 of 1 replicas")
		assert.False(t, gone.isOver())
		q.running.Wait()
		assert.Empty(t, q.byKey)
		assert.LessOrEqual(t, len(server.rounds()), 3)
	})
}

// TestConfirmQueue_SharesRoundTrips adds calls while others are being confirmed.
func TestConfirmQueue_SharesRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &testServer{answer: Confirmation{Lineage: "L"}, delay: 100 * time.Millisecond}
		q := newConfirmQueue[string](server.confirm)
		began := time.Now()
		var calls []*testCall
		add := func(partition int) {
			calls = append(calls, storedCall(t.Context(), partition, 1, "L"))
			q.add(calls[len(calls)-1])
			synctest.Wait()
		}
		add(1)
		time.Sleep(50 * time.Millisecond)
		add(2)
		for range 1000 {
			add(3)
		}
		assert.Equal(t, []int{1, 2}, server.rounds())
		<-calls[0].done
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		synctest.Wait()
		assert.False(t, calls[1].isOver(), "it was stored after the first round trip had begun")
		assert.Equal(t, []int{1, 2, 3}, server.rounds())
		for _, c := range calls {
			<-c.done
			require.NoError(t, c.Err)
			assert.NotZero(t, c.Result)
		}
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
		q.running.Wait()
		assert.Len(t, server.rounds(), 3)
		assert.Empty(t, q.byKey)
	})
}

// TestConfirmQueue_SlowReplicaConfirms stores publications faster than a replica confirms them.
func TestConfirmQueue_SlowReplicaConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &testServer{answer: Confirmation{Lineage: "L"}, delay: 2 * time.Second}
		q := newConfirmQueue[string](server.confirm)
		var calls []*testCall
		for range 200 {
			c := storedCall(t.Context(), 0, 1, "L")
			calls = append(calls, c)
			q.add(c)
			time.Sleep(100 * time.Millisecond)
		}
		q.running.Wait()
		for _, c := range calls {
			require.NoError(t, c.Err)
		}
	})
}

// TestConfirmQueue_WaitsOnlyForTheSame lets publications wait for a second replica, which is away, while
// others need only the first one, or were stored by another server.
func TestConfirmQueue_WaitsOnlyForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &testServer{answer: Confirmation{Lineage: "L"}, delay: 10 * time.Millisecond}
		q := newConfirmQueue[string](server.confirm)
		blocked := storedCall(t.Context(), 0, 2, "L")
		q.add(blocked)
		synctest.Wait()
		began := time.Now()
		one, elsewhere := storedCall(t.Context(), 0, 1, "L"), storedCall(t.Context(), 1, 1, "M")
		q.add(one)
		q.add(elsewhere)
		<-one.done
		<-elsewhere.done
		require.NoError(t, one.Err)
		require.ErrorIs(t, elsewhere.Err, errOtherServer)
		assert.Equal(t, 10*time.Millisecond, time.Since(began))
		assert.False(t, blocked.isOver())
		<-blocked.done
		require.Error(t, blocked.Err)
	})
}
