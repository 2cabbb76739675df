package appendqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

type testCall = Call[string]

// A testStore records the packets of the script calls, each of which takes a second.
type testStore struct {
	mu    sync.Mutex
	calls [][]string
}

func (s *testStore) exec(_ context.Context, batches []*Batch[string]) {
	s.mu.Lock()
	for _, b := range batches {
		var packets []string
		for _, c := range b.Calls {
			packets = append(packets, string(c.Packet))
		}
		s.calls = append(s.calls, packets)
	}
	s.mu.Unlock()
	time.Sleep(time.Second)
	for _, b := range batches {
		for i, c := range b.Calls {
			c.Result.Position.Offset = uint64(i + 1)
		}
	}
}

func (s *testStore) queue() *Queue[string] {
	return New(func(int) string { return "" }, s.exec, nil)
}

// A testResult is that of Queue.Do.
type testResult struct {
	broker.Appended
	err error
}

// start calls Do on a goroutine, and returns when the queue has the packet.
func start(ctx context.Context, q *Queue[string], packet string) <-chan testResult {
	done := make(chan testResult, 1)
	go func() {
		stored, err := q.Do(ctx, broker.Append{Packet: []byte(packet)}, 0, "")
		done <- testResult{stored, err}
	}()
	synctest.Wait()
	return done
}

// TestQueue_CanceledCallsAreNeverSentLater cancels a call that is in flight and one that waits
// behind it.
func TestQueue_CanceledCallsAreNeverSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store testStore
		q := store.queue()
		ctx, cancel := context.WithCancel(t.Context())
		inFlight, waiting := start(ctx, q, "1"), start(ctx, q, "2")
		assert.Equal(t, 1, q.Waiting())
		cancel()
		assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf((<-inFlight).err))
		assert.Equal(t, context.Canceled, (<-waiting).err)
		next := <-start(t.Context(), q, "3")
		require.NoError(t, next.err)
		assert.Equal(t, [][]string{{"1"}, {"3"}}, store.calls)
	})
}

// A lateContext has a deadline that has passed, but is not done yet, as after a pause of the
// process.
type lateContext struct{ context.Context } //nolint:containedctx // it is one

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Minute), true }

func TestQueue_SkipsOverdueCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store testStore
		q := store.queue()
		ctx, cancel := context.WithCancel(t.Context())
		late := start(lateContext{ctx}, q, "late")
		q.Close()
		q.Wait(t.Context())
		cancel()
		assert.Equal(t, context.Canceled, (<-late).err, "it was not sent")
		assert.Empty(t, store.calls)
	})
}

// TestQueue_CloseRejectsWhatWaits closes a queue that has a call in flight and others that wait
// behind it.
func TestQueue_CloseRejectsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store testStore
		q := store.queue()
		inFlight, waiting := start(t.Context(), q, "1"), start(t.Context(), q, "2")
		q.Close()
		assert.Equal(t, ErrClosed, (<-waiting).err)
		assert.Equal(t, ErrClosed, (<-start(t.Context(), q, "3")).err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		q.Wait(ctx)
		assert.Empty(t, inFlight)
		q.Wait(t.Context())
		synctest.Wait()
		stored := <-inFlight
		require.NoError(t, stored.err)
		assert.EqualValues(t, 1, stored.Position.Offset)
		assert.Equal(t, [][]string{{"1"}}, store.calls)
	})
}

// TestQueue_WaitingCallsShareTheNextScriptCall keeps the order of calls that wait.
func TestQueue_WaitingCallsShareTheNextScriptCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store testStore
		q := store.queue()
		var results []<-chan testResult
		for _, packet := range []string{"1", "2", "3", "4"} {
			results = append(results, start(t.Context(), q, packet))
		}
		for i, offset := range []uint64{1, 1, 2, 3} {
			assert.Equal(t, offset, (<-results[i]).Position.Offset)
		}
		assert.Equal(t, [][]string{{"1"}, {"2", "3", "4"}}, store.calls)
	})
}
