package sequencer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// startTail returns the connection of a node with a store, and a Tail of it from the beginning. A test ends with end.
func startTail(seed uint64) (conn *simConn, tail *sequencer.Tail, end func()) {
	conn = newSimStore(seed, 1000).connect(sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}})
	tail = conn.seq.Tail(broker.Position{})
	return conn, tail, func() {
		tail.Close()
		conn.mu.Lock()
		conn.seq.Close()
		conn.seq = nil
		conn.mu.Unlock()
		time.Sleep(time.Minute)
	}
}

// receive returns the offsets of the next publications.
func receive(t *testing.T, tail *sequencer.Tail, n int) (offsets []uint64) {
	for len(offsets) < n {
		page, err := tail.Next(t.Context())
		require.NoError(t, err)
		for _, p := range page {
			offsets = append(offsets, p.Position.Offset)
		}
	}
	return offsets
}

// TestTail_ReceivesEachOnceAndInOrder loses, repeats and delays what reaches the node, and lets reads fail.
func TestTail_ReceivesEachOnceAndInOrder(t *testing.T) {
	const messages = 600
	var want []uint64
	for n := range uint64(messages) {
		want = append(want, n+1)
	}
	faults := map[string]int{} // of all seeds
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			conn, tail, end := startTail(seed)
			defer end()
			store := conn.store
			for n := range messages / 2 {
				store.append(fmt.Sprint(n))
			}
			go func() {
				for n := range messages / 2 {
					time.Sleep(time.Duration(n%40) * time.Millisecond)
					store.append(fmt.Sprint(n))
				}
			}()
			assert.Equal(t, want, receive(t, tail, messages), "seed %d", seed)
			store.mu.Lock()
			defer store.mu.Unlock()
			for fault, times := range store.faults {
				faults[fault] += times
			}
		})
	}
	for _, fault := range []string{"publication lost", "publication repeated", "read failed"} {
		assert.NotZero(t, faults[fault], fault)
	}
}

// TestTail_FailoverEndsItOnlyIfItMayMissSomething has received three of four publications when the store fails over.
func TestTail_FailoverEndsItOnlyIfItMayMissSomething(t *testing.T) {
	for lost, fails := range map[int]bool{0: false, 1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			conn, tail, end := startTail(1)
			defer end()
			conn.store.healthy = true
			for range 3 {
				conn.store.append("before")
			}
			require.Len(t, receive(t, tail, 3), 3)
			conn.store.append("unseen")
			conn.store.failOver(lost)
			conn.store.append("after")
			page, err := tail.Next(t.Context())
			if fails {
				assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), "%d are lost: %v", lost, err)
				return
			}
			require.NoError(t, err)
			assert.EqualValues(t, 4, page[0].Position.Offset, "%d are lost", lost)
		})
	}
}

// TestTail_LearnsOfALossWithoutAPublication of the sequencer, when the node follows the topic again.
func TestTail_LearnsOfALossWithoutAPublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, tail, end := startTail(1)
		defer end()
		conn.store.healthy = true
		conn.store.append("lost")
		require.Len(t, receive(t, tail, 1), 1)
		time.AfterFunc(time.Second, func() {
			conn.store.failOver(1)
			conn.following()
		})
		_, err := tail.Next(t.Context())
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), "%v", err)
		_, again := tail.Next(t.Context())
		assert.Equal(t, err, again)
	})
}
