package wsconn_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// A recorder is a handler that records the calls of two methods.
type recorder struct {
	noopHandler

	overflows []wsconn.Overflow
	high      [][2]int
}

func (r *recorder) OnOverflow(o wsconn.Overflow) { r.overflows = append(r.overflows, o) }

func (r *recorder) OnBackpressure(messages, bytes int) {
	r.high = append(r.high, [2]int{messages, bytes})
}

// queue returns a connection with the given limits, and its client.
func queue(t *testing.T, policy wsconn.SlowConsumerPolicy, messages, bytes int) (*rawClient, *wsconn.Conn, *recorder) {
	opts := options()
	opts.SlowConsumer, opts.QueueMessages, opts.QueueBytes, opts.CloseTimeout = policy, messages, bytes, 100*time.Millisecond
	handler := &recorder{noopHandler: newHandler()}
	client, c := acceptWith(t, opts, handler)
	return client, c, handler
}

// put queues a message as a test writes it: "key:text" is droppable and has a
// key, ":text" is droppable, "text" is neither.
func put(c *wsconn.Conn, message string) error {
	f := wsconn.NewFrame()
	f.WriteString(message)
	if key, _, ok := strings.Cut(message, ":"); ok {
		f.Droppable(key)
	}
	f.Seal()
	return c.Queue(f)
}

func TestConn_SlowConsumerPolicies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		policy    wsconn.SlowConsumerPolicy
		put       []string
		err       error  // of the last
		left      string // what is written, 4 messages or 100 bytes at most
		dropped   int    // by the last
		conflated int    // by all
		closed    bool
	}{
		{"default is disconnect", wsconn.DefaultPolicy, []string{":1", ":2", ":3", ":4", ":5"}, wsconn.ErrClosed, ":1 :2 :3 :4", 1, 0, true},
		{"the oldest is dropped", wsconn.DropOldest, []string{":1", ":2", ":3", ":4", ":5"}, nil, ":2 :3 :4 :5", 1, 0, false},
		{"a reply is not dropped", wsconn.DropOldest, []string{"1", ":2", "3", ":4", ":5"}, nil, "1 3 :4 :5", 1, 0, false},
		{"a reply too many", wsconn.DropOldest, []string{"1", "2", "3", "4", "5"}, wsconn.ErrClosed, "1 2 3 4", 1, 0, true},
		{"by bytes", wsconn.DropOldest, []string{":" + strings.Repeat("a", 40), ":" + strings.Repeat("b", 40), ":" + strings.Repeat("c", 90)}, nil, ":" + strings.Repeat("c", 90), 2, 0, false},
		{"longer than the queue", wsconn.DropOldest, []string{"1", ":2", ":" + strings.Repeat("c", 100)}, wsconn.ErrDropped, "1 :2", 1, 0, false},
		{"the newest is dropped", wsconn.DropNewest, []string{":1", ":2", ":3", ":4", ":5"}, wsconn.ErrDropped, ":1 :2 :3 :4", 1, 0, false},
		{"the latest of each key takes the place of the first", wsconn.Conflate, []string{"a:1", "b:2", "a:3", "b:4", "a:5"}, nil, "a:5 b:4", 0, 3, false},
		{"no message without a key is overtaken", wsconn.Conflate, []string{"a:1", ":2", "3", "b:4", "a:5"}, nil, ":2 3 b:4 a:5", 0, 1, false},
		{"a longer latest does not fit", wsconn.Conflate, []string{"a:1", "b:" + strings.Repeat("b", 80), "a:" + strings.Repeat("a", 80)}, wsconn.ErrClosed, "b:" + strings.Repeat("b", 80), 1, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, c, handler := queue(t, tt.policy, 4, 100)
			wsconn.BlockWriter(c)
			last := len(tt.put) - 1
			for _, message := range tt.put[:last] {
				require.NoError(t, put(c, message))
			}
			before := len(handler.overflows)
			require.Equal(t, tt.err, put(c, tt.put[last]))
			dropped, conflated := 0, 0
			for i, o := range handler.overflows {
				conflated += o.Conflated
				if i >= before {
					dropped += o.Dropped
				}
				if o.Limit > 0 {
					assert.Contains(t, []int{4, 100}, o.Limit)
					assert.Greater(t, o.Queued, o.Limit)
				} else {
					assert.Zero(t, o.Dropped)
				}
			}
			assert.Equal(t, tt.dropped, dropped)
			assert.Equal(t, tt.conflated, conflated)
			wsconn.UnblockWriter(c)
			c.Flush()
			for want := range strings.SplitSeq(tt.left, " ") {
				_, got := client.next()
				assert.Equal(t, want, got)
			}
			if tt.closed {
				client.closed(1013)
				return
			}
			require.NoError(t, put(c, ":more"))
			c.Flush()
			_, got := client.next()
			assert.Equal(t, ":more", got)
		})
	}
}

// TestConn_FullQueueOfWritableSocketIsWritten queues more than the limits allow, before any writer runs.
func TestConn_FullQueueOfWritableSocketIsWritten(t *testing.T) {
	for _, policy := range []wsconn.SlowConsumerPolicy{wsconn.Disconnect, wsconn.DropOldest, wsconn.DropNewest, wsconn.Conflate} {
		client, c, handler := queue(t, policy, 4, 100)
		for n := range 1000 {
			require.NoError(t, put(c, fmt.Sprintf("%d:x", n)))
		}
		c.Flush()
		for n := range 1000 {
			_, got := client.next()
			require.Equal(t, fmt.Sprintf("%d:x", n), got)
		}
		assert.Empty(t, handler.overflows)
	}
}

func TestConn_ReportsBackpressureOnce(t *testing.T) {
	client, c, handler := queue(t, wsconn.Disconnect, 8, 1000)
	for range 8 {
		require.NoError(t, put(c, "x"))
	}
	assert.Equal(t, [][2]int{{5, 15}}, handler.high)
	c.Flush()
	for range 8 {
		client.next()
	}
	require.NoError(t, put(c, strings.Repeat("x", 600)))
	assert.Equal(t, [][2]int{{5, 15}, {1, 604}}, handler.high)
}
