package brokertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
)

// forSeeds runs a test in a bubble for each of some seeds.
func forSeeds(t *testing.T, seeds uint64, f func(t *testing.T, s *brokertest.FaultyStore, j *journal)) {
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := brokertest.Faulty(seed)
			t.Cleanup(func() {
				u := s.Usage()
				assert.Zero(t, u.Nodes, "seed %d", seed)
				assert.Zero(t, u.WaitingCalls, "seed %d", seed)
			})
			f(t, s, &journal{})
		})
	}
}

// packets returns what is in the history of a topic.
func packets(page broker.Page) string {
	var all []string
	for _, p := range page.Publications {
		all = append(all, string(p.Packet))
	}
	return strings.Join(all, " ")
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestFaulty_LosesAnswers expects each combination of an error and its truth.
func TestFaulty_LosesAnswers(t *testing.T) {
	outcomes := map[string]int{}
	forSeeds(t, 100, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		s.SetFaults(brokertest.StoreFaults{LostAnswers: 1})
		_, err := a.Append(t.Context(), broker.Append{Topic: "news"})
		before := len(s.Stored("news"))
		time.Sleep(time.Minute)
		outcomes[fmt.Sprintf("append %s, stored %d, then %d", errors.CodeOf(err), before, len(s.Stored("news")))]++
		_, err = a.StoreValue(t.Context(), "key", []byte("value"), 0, time.Hour)
		time.Sleep(time.Minute)
		outcomes[fmt.Sprintf("value %s, stored %d", errors.CodeOf(err), s.Usage().Values)]++
		_, err = a.Read(t.Context(), broker.Query{Topic: "news"})
		outcomes[fmt.Sprintf("read %s", errors.CodeOf(err))]++
		assert.Equal(t, 3, s.Occurred()["lost answer"])
	})
	want := []string{
		"append OUTCOME_UNKNOWN, stored 0, then 0", "append OUTCOME_UNKNOWN, stored 0, then 1", "append OUTCOME_UNKNOWN, stored 1, then 1",
		"append UNAVAILABLE, stored 0, then 0", "value OUTCOME_UNKNOWN, stored 0", "value OUTCOME_UNKNOWN, stored 1", "value UNAVAILABLE, stored 0",
		"read UNAVAILABLE",
	}
	for _, outcome := range want {
		assert.Positive(t, outcomes[outcome], outcome)
	}
	assert.Len(t, outcomes, len(want), "%v", outcomes)
}

func TestFaulty_Full(t *testing.T) {
	forSeeds(t, 3, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		first, err := a.Append(t.Context(), broker.Append{Topic: "news", IdempotencyKey: "key"})
		require.NoError(t, err)
		version, err := a.StoreValue(t.Context(), "key", []byte("value"), 0, time.Hour)
		require.NoError(t, err)
		s.SetFaults(brokertest.StoreFaults{Full: true})
		_, err = a.Append(t.Context(), broker.Append{Topic: "news"})
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		_, err = a.StoreValue(t.Context(), "key", []byte("other"), version, time.Hour)
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		_, err = a.PatchValue(t.Context(), "key", broker.Patch{}, version, time.Hour)
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		again, err := a.Append(t.Context(), broker.Append{Topic: "news", IdempotencyKey: "key"})
		require.NoError(t, err)
		assert.Equal(t, broker.Appended{Position: first.Position, Duplicate: true}, again)
		_, err = a.StoreValue(t.Context(), "key", nil, version, 0)
		require.NoError(t, err)
		assert.Zero(t, s.Usage().Values)
		s.SetFaults(brokertest.StoreFaults{})
		appendTo(t, a, "news", "2")
	})
}

// TestFaulty_SlowCallsEndWithTheirContext expects both kinds of errors, and their truth.
func TestFaulty_SlowCallsEndWithTheirContext(t *testing.T) {
	outcomes := map[string]int{}
	forSeeds(t, 50, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		s.SetFaults(brokertest.StoreFaults{Slow: time.Minute})
		begun := time.Now()
		_, err := a.Append(within(t, time.Second), broker.Append{Topic: "news"})
		assert.LessOrEqual(t, time.Since(begun), time.Second)
		time.Sleep(2 * time.Minute)
		outcomes[fmt.Sprintf("%s, stored %d", errors.CodeOf(err), len(s.Stored("news")))]++
		_, err = a.Read(within(t, time.Second), broker.Query{Topic: "news"})
		outcomes[fmt.Sprintf("read %s", errors.CodeOf(err))]++
	})
	for _, outcome := range []string{"OUTCOME_UNKNOWN, stored 1", "DEADLINE_EXCEEDED, stored 0", "read DEADLINE_EXCEEDED"} {
		assert.Positive(t, outcomes[outcome], outcome)
	}
	assert.Zero(t, outcomes["DEADLINE_EXCEEDED, stored 1"])
}

// TestFaulty_LostDeliveriesAreShown expects a later publication or a call of Following.
func TestFaulty_LostDeliveriesAreShown(t *testing.T) {
	outcomes := map[string]int{}
	forSeeds(t, 50, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		a.Follow("news")
		time.Sleep(5 * time.Second)
		j.take()
		s.SetFaults(brokertest.StoreFaults{LostDeliveries: 0.5})
		appendTo(t, a, "news", "1")
		appendTo(t, a, "news", "2")
		time.Sleep(10 * time.Second)
		outcomes[strings.Join(j.take(), ", ")]++
	})
	for _, outcome := range []string{"a published 1, a published 2", "a published 2", "a published 1, a following", "a following"} {
		assert.Positive(t, outcomes[outcome], outcome)
	}
	assert.Zero(t, outcomes["a published 1"])
	assert.Zero(t, outcomes[""])
}

// TestFaulty_CutOff publishes while a node is cut off.
func TestFaulty_CutOff(t *testing.T) {
	outcomes := map[string]int{}
	forSeeds(t, 100, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a, b := j.connect(t, s, "a"), j.connect(t, s, "b")
		b.Subscribe("chat")
		b.Follow("news")
		time.Sleep(5 * time.Second)
		j.take()
		appendTo(t, a, "news", "1")
		before := j.timeOf("b published 1")
		s.CutOff("b")
		synctest.Wait()
		if before.IsZero() && !j.timeOf("b published 1").IsZero() {
			outcomes["arrived at last"]++
		}
		appendTo(t, a, "news", "2")
		require.NoError(t, a.Publish("chat", []byte("packet")))
		begun := time.Now()
		_, err := b.Append(within(t, 10*time.Second), broker.Append{Topic: "news"})
		outcomes[fmt.Sprintf("append %s, hangs %t", errors.CodeOf(err), time.Since(begun) == 10*time.Second)]++
		_, err = b.Read(within(t, 10*time.Second), broker.Query{Topic: "news"})
		outcomes[fmt.Sprintf("read %s", errors.CodeOf(err))]++
		time.Sleep(time.Minute)
		events := j.take()
		outcomes["during: "+strings.Join(slices.DeleteFunc(events, func(e string) bool { return strings.HasPrefix(e, "a ") }), ", ")]++
		s.Heal("b")
		time.Sleep(5 * time.Second)
		events = j.take()
		assert.Contains(t, events, "b following")
		assert.Contains(t, events, "b lost")
		assert.Less(t, slices.Index(events, "b subscribed"), slices.Index(events, "b lost"))
		if slices.Contains(events, "b published 2") {
			outcomes["repeated"]++
		}
		assert.Equal(t, "1 2", packets(readNews(t, b)))
	})
	for _, outcome := range []string{
		"append UNAVAILABLE, hangs false", "append DEADLINE_EXCEEDED, hangs true", "append OUTCOME_UNKNOWN, hangs true", "append OUTCOME_UNKNOWN, hangs false",
		"read UNAVAILABLE", "read DEADLINE_EXCEEDED", "during: ", "during: b published 1", "arrived at last", "repeated",
	} {
		assert.Positive(t, outcomes[outcome], outcome)
	}
}

// TestFaulty_PauseDelays publishes while a node is paused, for less and more than the time after
// which nodes count as failed.
func TestFaulty_PauseDelays(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, 20 * time.Second} {
		forSeeds(t, 20, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
			a, b := j.connect(t, s, "a"), j.connect(t, s, "b")
			b.Follow("news")
			time.Sleep(5 * time.Second)
			j.take()
			s.Pause("b")
			time.AfterFunc(pause, func() { s.Resume("b") })
			begun := time.Now()
			appendTo(t, a, "news", "1")
			appendTo(t, b, "news", "2")
			resumed := begun.Add(pause)
			assert.False(t, s.Stored("news")[1].At.Before(resumed), "a paused node sends nothing")
			assert.False(t, j.timeOf("b published 1").Before(resumed), "a paused node receives nothing")
			time.Sleep(5 * time.Second)
			events := j.take()
			assert.Less(t, slices.Index(events, "b published 1"), slices.Index(events, "b published 2"))
			assert.Equal(t, pause > 10*time.Second, slices.Contains(events, "a left"), "%v", events)
			assert.NotContains(t, events, "b left")
		})
	}
}

// TestFaulty_Crash ends a node that appends, and starts it again.
func TestFaulty_Crash(t *testing.T) {
	stored := map[int]int{}
	forSeeds(t, 50, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a, b := j.connect(t, s, "a"), j.connect(t, s, "b")
		b.Follow("news")
		time.Sleep(5 * time.Second)
		j.take()
		done := make(chan error, 1)
		go func() {
			_, err := b.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("1")})
			done <- err
		}()
		time.Sleep(2 * time.Millisecond)
		if s.Crash("b"); len(done) > 0 {
			return // it was answered before
		}
		n := len(s.Stored("news"))
		stored[n]++
		appendTo(t, a, "news", "2")
		time.Sleep(20 * time.Second)
		assert.Len(t, s.Stored("news"), n+1, "a crashed node stores nothing more")
		events := j.take()
		assert.Contains(t, events, "a left")
		assert.NotContains(t, events, "b published 2")
		assert.Empty(t, done, "a crashed node has no answer")
		assert.Equal(t, 1, s.Usage().WaitingCalls)
		require.NoError(t, b.Close(t.Context()))
		assert.Contains(t, []errors.Code{errors.Unavailable, errors.OutcomeUnknown}, errors.CodeOf(<-done))

		again := j.connect(t, s, "b")
		appendTo(t, again, "news", "3")
		assert.Len(t, s.Stored("news"), n+2)
	})
	assert.Positive(t, stored[0])
	assert.Positive(t, stored[1])
}

// TestFaulty_NodeWith uses another broker for what has no history.
func TestFaulty_NodeWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pubsub := brokertest.Faulty(1), memory.NewBroker()
		received := make(chan string, 2)
		a := s.NodeWith("a", pubsub).ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
		b := s.NodeWith("b", pubsub).ConnectHistory(broker.Callbacks{
			Receive: func(_, _ string, packet []byte) { received <- string(packet) },
		}, broker.HistoryCallbacks{
			Published: func(_ string, p broker.Publication) { received <- string(p.Packet) },
		})
		b.Subscribe("chat")
		b.Follow("news")
		time.Sleep(5 * time.Second)
		s.CutOff("a")
		require.NoError(t, a.Publish("chat", []byte("packet")))
		assert.Equal(t, "packet", <-received, "the other broker is not disturbed")
		_, err := a.Append(within(t, time.Second), broker.Append{Topic: "news"})
		require.Error(t, err)
		s.Heal("a")
		time.Sleep(5 * time.Second)
		appendTo(t, a, "news", "publication")
		assert.Equal(t, "publication", <-received)
		require.NoError(t, a.Close(t.Context()))
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestFaulty_CloseEndsCallsWithItsContext pauses a node that appends, and closes it.
func TestFaulty_CloseEndsCallsWithItsContext(t *testing.T) {
	forSeeds(t, 30, func(t *testing.T, s *brokertest.FaultyStore, j *journal) {
		a := j.connect(t, s, "a")
		done := make(chan error, 1)
		go func() {
			_, err := a.Append(context.Background(), broker.Append{Topic: "news"})
			done <- err
		}()
		synctest.Wait()
		s.Pause("a")
		_ = a.Close(within(t, time.Second))
		stored := len(s.Stored("news"))
		assert.Error(t, <-done)
		s.Resume("a")
		time.Sleep(time.Minute)
		assert.Len(t, s.Stored("news"), stored, "a closed node stores nothing more")
	})
}
