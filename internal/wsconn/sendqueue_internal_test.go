package wsconn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// A modelFrame is a frame of the reference model.
type modelFrame struct {
	text      string
	droppable bool
	policy    SlowConsumerPolicy
	key       string
	place     int // in the order in which places were given
}

func (f modelFrame) size() int { return 2 + len(f.text) }

func (f modelFrame) conflatable() bool { return f.droppable && f.policy == Conflate && f.key != "" }

func (f modelFrame) sheddable() bool {
	return f.droppable && (f.policy == DropOldest || f.policy == DropNewest)
}

// A queueModel states the policies over a plain list, without regard to speed.
type queueModel struct {
	maxMessages, maxBytes int

	frames             []modelFrame
	places             int // given so far
	fence              int // the last place that was given to a frame that is not conflatable
	closed             bool
	dropped, conflated int
}

func (m *queueModel) full(f modelFrame) bool {
	bytes := f.size()
	for _, queued := range m.frames {
		bytes += queued.size()
	}
	return len(m.frames)+1 > m.maxMessages || bytes > m.maxBytes
}

func (m *queueModel) put(f modelFrame) error {
	if m.closed {
		return ErrClosed
	}
	if f.conflatable() {
		if i := slices.IndexFunc(m.frames, func(g modelFrame) bool { return g.conflatable() && g.key == f.key }); i >= 0 {
			if m.frames[i].place > m.fence {
				f.place = m.frames[i].place
			}
			m.frames = slices.Delete(m.frames, i, i+1)
			m.conflated++
		}
	}
	if m.full(f) {
		if err := m.makeRoom(f); err != nil {
			m.dropped++
			m.closed = err == ErrClosed //nolint:errorlint // never wrapped
			return err
		}
	}
	if f.place == 0 {
		m.places++
		f.place = m.places
	}
	if !f.conflatable() {
		m.fence = f.place
	}
	m.frames = append(m.frames, f)
	slices.SortFunc(m.frames, func(a, b modelFrame) int { return a.place - b.place })
	return nil
}

func (m *queueModel) makeRoom(f modelFrame) error {
	fits := f.size() <= m.maxBytes
	newest := f.droppable && f.policy == DropNewest
	for fits && !newest && m.full(f) {
		i := slices.IndexFunc(m.frames, modelFrame.sheddable)
		if i < 0 {
			break
		}
		m.frames = slices.Delete(m.frames, i, i+1)
		m.dropped++
	}
	switch {
	case !m.full(f),
		fits && f.droppable && f.policy == DropOldest,
		fits && f.conflatable() && !slices.ContainsFunc(m.frames, modelFrame.conflatable):
		return nil
	case f.sheddable():
		return ErrDropped
	default:
		return ErrClosed
	}
}

func (m *queueModel) take(limit int) (taken []string) {
	for len(m.frames) > 0 {
		f := m.frames[0]
		if limit -= f.size(); limit < 0 && len(taken) > 0 {
			break
		}
		m.frames = m.frames[1:]
		taken = append(taken, f.text)
	}
	return taken
}

// A countingHandler adds up what is reported.
type countingHandler struct {
	NoopHandler

	dropped, conflated int
}

func (h *countingHandler) OnOverflow(o Overflow) {
	h.dropped += o.Dropped
	h.conflated += o.Conflated
}

// queueOnly returns a connection without a socket, whose writer is the test.
func queueOnly(t *testing.T, opts *Options) (*Conn, *countingHandler) {
	h := &countingHandler{}
	c := &Conn{opts: opts, handler: h}
	t.Cleanup(func() { opts.Engine.timers.Stop((*connTimer)(c)) })
	c.writer.Store(writerBlocked)
	return c, h
}

// texts returns the data frames that wait.
func (c *Conn) texts() []string {
	if c.queueLocked() == nil {
		return nil
	}
	var texts []string
	for _, f := range c.queue.frames[c.queue.head:] {
		if f != nil && f.size() > 0 {
			texts = append(texts, string(f.Text()))
		}
	}
	return texts
}

// TestSendQueue_MatchesReferenceModel runs random operations on a queue and on the model. One of
// the policies is that of the connection, the others are those of frames.
func TestSendQueue_MatchesReferenceModel(t *testing.T) {
	operations := testscale.Tiers(300, 1000, 5000)
	for name, policies := range map[string][]SlowConsumerPolicy{
		"disconnect":  {Disconnect},
		"drop oldest": {DropOldest},
		"drop newest": {DropNewest},
		"conflate":    {Conflate},
		"mixed":       {DropOldest, Conflate, DropNewest, Disconnect},
		"two":         {Conflate, DropOldest},
	} {
		for _, size := range []struct{ messages, bytes, keys int }{{1, 40, 1}, {4, 60, 3}, {8, 1000, 5}, {64, 2000, 30}, {300, 1 << 20, 100}} {
			t.Run(fmt.Sprintf("%s, %d messages", name, size.messages), func(t *testing.T) {
				seed := rand.Uint64()
				defer func() {
					if t.Failed() {
						t.Logf("seed %d", seed)
					}
				}()
				random := rand.New(rand.NewPCG(seed, 0))
				opts := NewTestOptions()
				opts.QueueMessages, opts.QueueBytes, opts.SlowConsumer = size.messages, size.bytes, policies[0]
				opts.BufferBytes = 1 + random.IntN(size.bytes)
				var c *Conn
				var h *countingHandler
				var m queueModel
				reset := func() {
					c, h = queueOnly(t, opts)
					m = queueModel{maxMessages: size.messages, maxBytes: size.bytes}
				}
				reset()
				writes := 1 + random.IntN(3*size.messages) // operations per write
				for n := range operations {
					if m.closed {
						reset()
					}
					if random.IntN(writes) == 0 && len(m.frames) > 0 {
						b := c.nextBatch()
						var got []string
						for _, f := range b.frames {
							got = append(got, string(f.Text()))
						}
						require.Equal(t, m.take(opts.BufferBytes), got)
						require.Equal(t, len(got), b.messages)
						c.finishBatch(b, true)
					} else {
						f := modelFrame{
							text:      fmt.Sprint(n, strings.Repeat("x", random.IntN(20))),
							droppable: random.IntN(20) > 0,
							policy:    policies[random.IntN(len(policies))],
						}
						if random.IntN(10) > 0 {
							f.key = fmt.Sprint(random.IntN(size.keys))
						}
						require.Equal(t, m.put(f), c.Queue(frameOf(f, opts.SlowConsumer)))
					}
					checkQueue(t, c, &m, h)
				}
			})
		}
	}
}

func frameOf(m modelFrame, fallback SlowConsumerPolicy) *Frame {
	f := NewFrame()
	f.WriteString(m.text)
	if m.droppable {
		f.Droppable(m.key)
	}
	if m.policy != fallback {
		f.SetPolicy(m.policy)
	}
	f.Seal()
	return f
}

func checkQueue(t *testing.T, c *Conn, m *queueModel, h *countingHandler) {
	t.Helper()
	var want []string
	bytes, sheddable, conflatable := 0, 0, 0
	for _, f := range m.frames {
		want = append(want, f.text)
		bytes += f.size()
		if f.sheddable() {
			sheddable++
		}
		if f.conflatable() {
			conflatable++
		}
	}
	require.Equal(t, want, c.texts())
	require.Equal(t, [2]int{m.dropped, m.conflated}, [2]int{h.dropped, h.conflated})
	messages, got := c.queuedLocked()
	require.Equal(t, [2]int{len(want), bytes}, [2]int{messages, got})
	if c.queueLocked() != nil {
		require.Equal(t, [2]int{sheddable, conflatable}, [2]int{c.queue.sheddable, c.queue.conflatable})
	}
}

// TestSendQueue_WritingDoesNotCount hands a batch to a writer that does not end, as that of a
// client that does not read.
func TestSendQueue_WritingDoesNotCount(t *testing.T) {
	for _, policy := range []SlowConsumerPolicy{Disconnect, DropOldest, DropNewest, Conflate} {
		opts := NewTestOptions()
		opts.QueueMessages, opts.SlowConsumer = 8, policy
		c, h := queueOnly(t, opts)
		put := func(n int) error {
			return c.Queue(frameOf(modelFrame{text: fmt.Sprint(n), droppable: true, policy: policy, key: fmt.Sprint(n % 8)}, policy))
		}
		for n := range 8 {
			require.NoError(t, put(n))
		}
		b := c.nextBatch()
		for n := 8; n < 16; n++ {
			require.NoError(t, put(n))
		}
		assert.Zero(t, h.dropped)
		stats := c.QueueStats()
		assert.Equal(t, []int{8, 8, 8}, []int{stats.Messages, stats.WritingMessages, stats.PeakMessages})
		c.finishBatch(b, true)
		assert.Equal(t, []string{"8", "9", "10", "11", "12", "13", "14", "15"}, c.texts())
	}
}

func TestSendQueue_HolesTakeBoundedMemory(t *testing.T) {
	for name, policy := range map[string]SlowConsumerPolicy{"dropped": DropOldest, "conflated behind a fence": Conflate} {
		t.Run(name, func(t *testing.T) {
			opts := NewTestOptions()
			opts.QueueMessages, opts.QueueBytes, opts.SlowConsumer = 64, 1<<20, policy
			c, _ := queueOnly(t, opts)
			c.queue = &sendQueue{policy: policy}
			for n := range 100_000 {
				_ = c.Queue(frameOf(modelFrame{text: "text", droppable: true, policy: policy, key: fmt.Sprint(n % 16)}, policy))
				if policy == Conflate {
					c.queue.fence = len(c.queue.frames)
				}
			}
			assert.LessOrEqual(t, cap(c.queue.frames), 256)
			assert.LessOrEqual(t, len(c.queue.index), 16)
		})
	}
}

// TestSendQueue_PongsAreBounded has a client that sends pings and reads no pong. Of the pings that are too many, the most
// recent one is answered, in its place among the messages.
func TestSendQueue_PongsAreBounded(t *testing.T) {
	opts := NewTestOptions()
	opts.BufferBytes = 1 // a frame per write
	c, _ := queueOnly(t, opts)
	write := func(n int) (texts []string) {
		for range n {
			b := c.nextBatch()
			texts = append(texts, string(b.frames[0].Text()))
			c.finishBatch(b, true)
		}
		return texts
	}
	var first []string
	for n := range maxPongs - 1 {
		first = append(first, fmt.Sprint(n))
		c.queuePong([]byte(first[n]))
	}
	c.queuePong([]byte("too many"))
	require.NoError(t, c.Queue(frameOf(modelFrame{text: "message"}, Disconnect)))
	for n := range 100_000 {
		c.queuePong(fmt.Append(nil, n))
	}
	assert.LessOrEqual(t, cap(c.queue.frames), 4*maxPongs)
	assert.Equal(t, first[:50], write(50))
	c.queuePong([]byte("not too many"))
	assert.Equal(t, append(first[50:], "message", "99999", "not too many"), write(maxPongs-50+2))
	assert.Nil(t, c.queue)
}

func TestConn_QueueStats(t *testing.T) {
	opts := NewTestOptions()
	opts.QueueMessages, opts.BufferBytes = 4, 6
	c, _ := queueOnly(t, opts)
	assert.Zero(t, c.QueueStats())
	start := time.Now()
	for n := range 4 {
		f := frameOf(modelFrame{text: "123"}, Disconnect)
		f.At = start.Add(time.Duration(n) * time.Second)
		require.NoError(t, c.Queue(f))
	}
	assert.Equal(t, QueueStats{Messages: 4, Bytes: 20, Oldest: start, PeakMessages: 4, PeakBytes: 20, High: true}, c.QueueStats())
	b := c.nextBatch()
	assert.Equal(t, QueueStats{Messages: 3, Bytes: 15, WritingMessages: 1, WritingBytes: 5, Oldest: start, PeakMessages: 4, PeakBytes: 20, High: true}, c.QueueStats())
	c.finishBatch(b, true)
	assert.Equal(t, start.Add(time.Second), c.QueueStats().Oldest)
	for range 3 {
		c.finishBatch(c.nextBatch(), true)
	}
	assert.Equal(t, QueueStats{PeakMessages: 4, PeakBytes: 20}, c.QueueStats())
}
