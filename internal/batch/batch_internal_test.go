package batch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type intCall = Call[int, int]

// double answers every call with twice its request.
func double(_ context.Context, calls []*intCall) {
	for _, c := range calls {
		c.Response = 2 * c.Request
	}
}

func TestBatcher_SingleCallerExecutesItself(t *testing.T) {
	for _, tt := range []struct {
		name           string
		timeout        time.Duration
		honorsDeadline bool
		want           bool
	}{
		{"the context never ends", 0, false, true},
		{"exec returns at a near deadline", LimiterTimeout / 20, true, true},
		{"exec may return after the deadline", LimiterTimeout / 20, false, false},
		{"the caller may cancel long before the deadline", time.Minute, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			caller, own := goroutine(), false
			b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
				own = goroutine() == caller
				double(ctx, calls)
			}, tt.honorsDeadline)
			ctx := context.Background()
			if tt.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				defer cancel()
			}
			c := &intCall{Request: 21}
			require.NoError(t, b.Do(ctx, c))
			assert.Equal(t, 42, c.Response)
			assert.Equal(t, tt.want, own)
			if own {
				assert.Empty(t, b.running, "the round trip has finished")
			}
		})
	}
}

// goroutine returns the beginning of the calling goroutine's stack, which contains its ID.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(stack[:bytes.IndexByte(stack, '[')])
}

func TestBatcher_ConcurrentCallsShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 200
		var mu sync.Mutex
		var sizes []int
		b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			time.Sleep(time.Millisecond)
			double(ctx, calls)
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(calls))
		}, false)
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				c := &intCall{Request: n}
				assert.NoError(t, b.Do(ctx, c))
				assert.Equal(t, 2*n, c.Response)
			})
		}
		wg.Wait()
		synctest.Wait()
		sum := 0
		for _, size := range sizes {
			assert.LessOrEqual(t, size, 64)
			sum += size
		}
		assert.Equal(t, callers, sum, "every call was sent once")
		assert.LessOrEqual(t, len(sizes), 2*maxRoundTrips+callers/maxCalls)
		assert.Empty(t, b.running)
		assert.Empty(t, b.waiting)
	})
}

// TestBatcher_WaitingCallsFollowOwnRoundTrips has callers wait while others execute their calls
// themselves. No goroutine runs the batcher until those return.
func TestBatcher_WaitingCallsFollowOwnRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			<-block
			double(ctx, calls)
		}, false)
		var wg sync.WaitGroup
		for n := range 100 {
			wg.Go(func() {
				c := &intCall{Request: n}
				assert.NoError(t, b.Do(context.Background(), c))
				assert.Equal(t, 2*n, c.Response)
			})
		}
		synctest.Wait()
		assert.Len(t, b.waiting, 100-maxRoundTrips)
		close(block)
		wg.Wait()
		synctest.Wait()
		assert.Empty(t, b.running)
	})
}

func TestBatcher_CanceledCallIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var mu sync.Mutex
		sent := map[int]bool{}
		b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			<-block
			mu.Lock()
			defer mu.Unlock()
			for _, c := range calls {
				sent[c.Request] = true
			}
		}, false)
		var wg sync.WaitGroup
		for n := range maxRoundTrips { // these occupy all round trips
			wg.Go(func() { assert.NoError(t, b.Do(context.Background(), &intCall{Request: n})) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		late := &intCall{Request: 99}
		err := b.Do(ctx, late)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "test: ")
		late.Wait() // returns, because the call will never be sent
		close(block)
		wg.Wait()
		synctest.Wait()
		assert.Equal(t, map[int]bool{0: true, 1: true}, sent)
	})
}

func TestBatcher_WaitReturnsAfterAbandonedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			<-block
			double(ctx, calls)
		}, false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		c := &intCall{Request: 4}
		require.ErrorIs(t, b.Do(ctx, c), context.DeadlineExceeded, "the call is in flight")
		close(block)
		c.Wait()
		assert.Equal(t, 8, c.Response)
	})
}

// TestBatcher_OverdueRoundTripsAreReplaced has an exec that never returns from its first round
// trips.
func TestBatcher_OverdueRoundTripsAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var hangs atomic.Bool
		hangs.Store(true)
		b := New("test", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			if hangs.Load() {
				<-block
				return
			}
			double(ctx, calls)
		}, false)
		call := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			return b.Do(ctx, &intCall{})
		}
		for range maxRoundTrips + 1 {
			require.Error(t, call())
		}
		hangs.Store(false)
		require.Error(t, call(), "no round trip is free yet")
		time.Sleep(2 * LimiterTimeout)
		require.NoError(t, call())
		close(block)
		synctest.Wait()
		require.NoError(t, call())
	})
}

// TestIsOfContext_TellsDeadlinesApart compares deadlines of callers, of a round trip and of a dial.
func TestIsOfContext_TellsDeadlinesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := New("redis: history", LimiterTimeout, func(ctx context.Context, calls []*intCall) {
			<-ctx.Done()
			calls[0].Err = fmt.Errorf("dial: %w", ctx.Err())
		}, true)
		err := slow.Do(t.Context(), &intCall{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, IsOfContext(t.Context(), err), "the caller would have waited")
		for _, timeout := range []time.Duration{LimiterTimeout / 2, LimiterTimeout / 20} { // the second executes the call itself
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			assert.True(t, IsOfContext(ctx, slow.Do(ctx, &intCall{})))
			assert.False(t, IsOfContext(ctx, io.ErrUnexpectedEOF))
			cancel()
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		assert.True(t, IsOfContext(canceled, slow.Do(canceled, &intCall{})))
		time.Sleep(LimiterTimeout)
	})
	_, err := (&net.Dialer{Timeout: -time.Second}).Dial("tcp", "192.0.2.1:6379")
	require.ErrorIs(t, err, context.DeadlineExceeded, "a dial that took too long")
	assert.False(t, IsOfContext(t.Context(), err))
}

func TestBatcher_ErrorOfCall(t *testing.T) {
	b := New("redis: limiter", LimiterTimeout, func(_ context.Context, calls []*intCall) { calls[0].Err = io.ErrUnexpectedEOF }, false)
	err := b.Do(t.Context(), &intCall{})
	require.EqualError(t, err, "redis: limiter: unexpected EOF")
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestBatcher_WokenCallersShareRoundTrips has ten callers on one processor that call twice, and one that waits during
// their first round trip. The scheduler may interrupt that, so a few attempts are permitted.
func TestBatcher_WokenCallersShareRoundTrips(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var roundTrips []int
	for range 20 {
		if roundTrips = roundTripsOfEleven(t); len(roundTrips) == 2 {
			break
		}
	}
	assert.Equal(t, []int{10, 11}, roundTrips)
}

func roundTripsOfEleven(t *testing.T) (sizes []int) {
	var b *Batcher[int, int]
	var wg sync.WaitGroup
	begin := func(calls int) {
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			defer cancel()
			for range calls {
				assert.NoError(t, b.Do(ctx, &intCall{}))
			}
		})
	}
	b = New("", LimiterTimeout, func(_ context.Context, calls []*intCall) {
		sizes = append(sizes, len(calls))
		if len(sizes) == 1 {
			begin(1)
			runtime.Gosched()
		}
	}, false)
	b.running = []*roundTrip{{time.Now()}} // the other one, which does not end
	for range 10 {
		begin(2)
	}
	wg.Wait()
	return sizes
}
