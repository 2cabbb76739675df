package wsconn

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConn_AwaitLowWaterReturnsAlthoughQueueIsHighAgain lets a producer fill the queue before the
// goroutine that waits for it has run.
func TestConn_AwaitLowWaterReturnsAlthoughQueueIsHighAgain(t *testing.T) {
	c, _ := accept(t, NewTestOptions())
	c.mu.Lock()
	c.high.Store(true)
	c.mu.Unlock()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		c.AwaitLowWater()
	}()
	waits := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waits != nil && c.waits.progress != nil
	}
	require.Eventually(t, waits, time.Minute, time.Millisecond)
	c.mu.Lock()
	c.updateHigh()
	c.high.Store(true)
	c.signalProgressLocked()
	c.mu.Unlock()
	select {
	case <-returned:
	case <-time.After(10 * time.Second):
		require.Fail(t, "AwaitLowWater still waits")
	}
}

// TestConn_CanceledFrameIsNotQueued cancels before the frame is queued, and while it waits.
func TestConn_CanceledFrameIsNotQueued(t *testing.T) {
	c, _ := accept(t, NewTestOptions())
	newFrame := func() (*Frame, error) {
		f := NewFrame()
		f.WriteString("late")
		f.Seal()
		return f, nil
	}
	late, _ := newFrame()
	var canceled atomic.Bool
	canceled.Store(true)
	require.ErrorIs(t, c.QueueUnless(&canceled, late), ErrCanceled)
	require.ErrorIs(t, c.QueueTurn(newFrame, nil, canceled.Load), ErrCanceled)
	assert.Zero(t, c.QueueStats().Messages)

	canceled.Store(false)
	c.mu.Lock()
	c.high.Store(true)
	c.mu.Unlock()
	result := make(chan error, 1)
	go func() { result <- c.QueueTurn(newFrame, nil, canceled.Load) }()
	waits := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waits != nil && c.waits.progress != nil
	}
	require.Eventually(t, waits, time.Minute, time.Millisecond)
	canceled.Store(true)
	c.mu.Lock()
	c.updateHigh()
	c.signalProgressLocked()
	c.mu.Unlock()
	require.ErrorIs(t, <-result, ErrCanceled)
	assert.Zero(t, c.QueueStats().Messages)

	canceled.Store(false)
	require.NoError(t, c.QueueTurn(newFrame, nil, canceled.Load), "the turn is free again")
	assert.Equal(t, 1, c.QueueStats().Messages)
}
