package appendqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

type testCall = Call[string]

func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// newTestCall returns a call whose packet is that number.
func newTestCall(t *testing.T, partition, number int) *testCall {
	c := &testCall{ctx: t.Context(), partition: partition}
	c.Append = broker.Append{Packet: fmt.Append(nil, number)}
	return c
}

// TestQueue_KeepsOrder lets calls wait while one is in flight, and changes their path.
func TestQueue_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var path atomic.Value
		path.Store("a")
		var inFlight [4]atomic.Int32
		var roundTrips atomic.Int32               // of two senders, when the path has changed
		stored := make([][]string, len(inFlight)) // a partition has one call in flight
		q := New(func(int) string { return path.Load().(string) }, func(_ context.Context, batches []*Batch[string]) {
			roundTrips.Add(1)
			for _, b := range batches {
				assert.EqualValues(t, 1, inFlight[b.Partition].Add(1))
			}
			time.Sleep(time.Second)
			for _, b := range batches {
				inFlight[b.Partition].Add(-1)
				for _, c := range b.Calls {
					stored[b.Partition] = append(stored[b.Partition], string(c.Packet))
				}
			}
		}, nil)
		var calls []*testCall
		for i := range 1000 {
			if i == 500 {
				path.Store("b")
			}
			for p := range stored {
				if p%2 == 0 { // those of one half
					c := newTestCall(t, p, i)
					calls = append(calls, c)
					require.True(t, q.enqueue(c))
				}
			}
			if i < 3 {
				synctest.Wait()
			}
		}
		for _, c := range calls {
			<-c.done
		}
		q.Close()
		q.Wait(t.Context())
		for p := range stored {
			if p%2 == 0 {
				assert.Equal(t, numbers(0, 999), stored[p])
			}
		}
		assert.LessOrEqual(t, int(roundTrips.Load()), 2+1000/maxBatchCalls+2)
		assert.Empty(t, q.partitions)
		assert.Empty(t, q.senders)
	})
}

// TestQueue_PathsAreIndependent blocks one path.
func TestQueue_PathsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		q := New(func(partition int) string { return fmt.Sprint(partition) }, func(_ context.Context, batches []*Batch[string]) {
			if batches[0].Partition == 0 {
				<-release
			}
		}, nil)
		blocked := newTestCall(t, 0, 1)
		require.True(t, q.enqueue(blocked))
		synctest.Wait()
		_, err := q.do(newTestCall(t, 2, 1))
		require.NoError(t, err)
		waiting := newTestCall(t, 0, 2)
		require.True(t, q.enqueue(waiting))
		q.Close()
		<-waiting.done
		assert.Equal(t, ErrClosed, waiting.Err)
		close(release)
		<-blocked.done
		require.NoError(t, blocked.Err)
		q.Wait(t.Context())
	})
}

// A lateContext has a deadline that has passed, but is not done yet, as after a pause of the process.
type lateContext struct{ context.Context } //nolint:containedctx // it is one

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Minute), true }

func TestPartition_SkipsOverdueCalls(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late := &testCall{ctx: lateContext{t.Context()}}
	p := &partition[string]{waiting: []*testCall{late, {ctx: canceled}, {ctx: t.Context()}}}
	b, _ := p.nextBatchLocked()
	assert.Len(t, b.Calls, 1)
	assert.Empty(t, p.waiting)
	assert.True(t, (&Queue[string]{}).abandon(late), "it was not sent")
}
