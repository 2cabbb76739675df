package redis

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
	"github.com/penstock-go/penstock/internal/cluster"
)

// newTestCall returns a call whose packet is that number.
func newTestCall(t *testing.T, partition, number int) *appendCall {
	c := &appendCall{ctx: t.Context(), keys: historyKeys{channel: cluster.Channel{Partition: partition}}}
	c.Append = broker.Append{Packet: fmt.Append(nil, number)}
	return c
}

// TestAppendQueue_KeepsOrder lets calls wait while one is in flight, and changes their path.
func TestAppendQueue_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var path atomic.Value
		path.Store("a")
		var inFlight [4]atomic.Int32
		stored := make([][]string, len(inFlight)) // a partition has one call in flight
		roundTrips := 0
		q := newAppendQueue(func(int) string { return path.Load().(string) }, func(_ context.Context, batches []*appendBatch) {
			roundTrips++
			for _, b := range batches {
				assert.EqualValues(t, 1, inFlight[b.partition.number].Add(1))
			}
			time.Sleep(time.Second)
			for _, b := range batches {
				inFlight[b.partition.number].Add(-1)
				for _, c := range b.calls {
					stored[b.partition.number] = append(stored[b.partition.number], string(c.Packet))
				}
			}
		})
		var calls []*appendCall
		for i := range 1000 {
			if i == 500 {
				path.Store("b")
			}
			for p := range stored {
				if p%2 == 0 { // those of one sender, so that roundTrips needs no lock
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
		q.close()
		q.wait(t.Context())
		for p := range stored {
			if p%2 == 0 {
				assert.Equal(t, numbers(0, 999), stored[p])
			}
		}
		assert.LessOrEqual(t, roundTrips, 2+1000/maxBatchCalls+2)
		assert.Empty(t, q.partitions)
		assert.Empty(t, q.senders)
	})
}

// TestAppendQueue_PathsAreIndependent blocks one path.
func TestAppendQueue_PathsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		q := newAppendQueue(func(partition int) string { return fmt.Sprint(partition) }, func(_ context.Context, batches []*appendBatch) {
			if batches[0].partition.number == 0 {
				<-release
			}
		})
		blocked := newTestCall(t, 0, 1)
		require.True(t, q.enqueue(blocked))
		synctest.Wait()
		_, err := q.do(newTestCall(t, 2, 1))
		require.NoError(t, err)
		waiting := newTestCall(t, 0, 2)
		require.True(t, q.enqueue(waiting))
		q.close()
		<-waiting.done
		assert.Equal(t, errClosedSession, waiting.err)
		close(release)
		<-blocked.done
		require.NoError(t, blocked.err)
		q.wait(t.Context())
	})
}

// A lateContext has a deadline that has passed, but is not done yet, as after a pause of the process.
type lateContext struct{ context.Context } //nolint:containedctx // it is one

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Minute), true }

func TestAppendPartition_SkipsOverdueCalls(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late := &appendCall{ctx: lateContext{t.Context()}}
	p := &appendPartition{waiting: []*appendCall{late, {ctx: canceled}, {ctx: t.Context()}}}
	b, _ := p.nextBatch()
	assert.Len(t, b.calls, 1)
	assert.Empty(t, p.waiting)
	assert.True(t, (&appendQueue{}).abandon(late), "it was not sent")
}
