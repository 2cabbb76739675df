package sequencer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Catchup reads what one client has missed of the topics to which it returns at once: first the positions
// of all, and then publications of those that have the fewest, as far as the client can receive them. What
// it cannot receive is not read, nor is what the node has from another client, see recent.go.
type Catchup struct {
	histories broker.Histories

	mu              sync.Mutex
	messages, bytes int // that the client can still receive; bytes of packets
	expected        int // topics that have not called read or Close yet
	gather          *time.Timer
	gathered        bool // gatherTime has passed
	waiting         []*missedRead
	running         bool
}

// gatherTime is how long the topics of a Catchup wait for the slowest of them before the first read.
const gatherTime = 100 * time.Millisecond

// NewCatchup returns a Catchup for a client that can receive that many publications, and that many bytes of
// packets.
func NewCatchup(histories broker.Histories, messages, bytes int) *Catchup {
	return &Catchup{histories: histories, messages: max(messages, 0), bytes: max(bytes, 0)}
}

// A CatchupTopic is one of the topics of a Catchup. One goroutine at a time uses it.
type CatchupTopic struct {
	catchup         *Catchup
	limit           int
	arrived         bool
	messages, bytes int // that the last read has taken
}

// Topic adds a topic, of which the client receives at most limit publications. The others wait for it, so it
// must be passed to a Join, and closed. All topics must be added before the first Join.
func (c *Catchup) Topic(limit int) *CatchupTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected++
	return &CatchupTopic{catchup: c, limit: limit}
}

// Close must be called after the Join. It does nothing if t is nil.
func (t *CatchupTopic) Close() {
	if t == nil {
		return
	}
	c := t.catchup
	c.mu.Lock()
	defer c.mu.Unlock()
	t.arriveLocked()
	if c.expected == 0 {
		c.startLocked()
	}
}

func (t *CatchupTopic) arriveLocked() {
	if !t.arrived {
		t.arrived = true
		t.catchup.expected--
	}
}

// A missedRead is a call of CatchupTopic.read.
type missedRead struct {
	ctx       context.Context //nolint:containedctx // of the caller, who waits
	topic     *CatchupTopic
	sequencer *Sequencer
	query     broker.TopicQuery
	since     broker.Position

	missed
	err  error
	done chan struct{} // closed when missed or err is set
}

// missed is what follows a position.
type missed struct {
	recoverable  bool // the store reaches back, and not too much was missed
	after        uint64
	count        uint64
	current      broker.Position
	ended        *broker.Position
	publications []broker.Publication // those after the offset after
	kept         bool                 // this node had them from another client
}

// read returns what follows since. It waits until the other topics have arrived, at most for gatherTime.
func (t *CatchupTopic) read(ctx context.Context, s *Sequencer, since broker.Position) (missed, error) {
	r := &missedRead{
		ctx: ctx, topic: t, sequencer: s, since: since, done: make(chan struct{}),
		query: broker.TopicQuery{Topic: s.topic, Retention: s.retention, After: since.Offset, Epoch: since.Epoch},
	}
	t.catchup.add(r)
	<-r.done // it ends with ctx
	return r.missed, r.err
}

func (c *Catchup) add(r *missedRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages, c.bytes = c.messages+r.topic.messages, c.bytes+r.topic.bytes // of an attempt that has failed
	r.topic.messages, r.topic.bytes = 0, 0
	r.topic.arriveLocked()
	c.waiting = append(c.waiting, r)
	switch {
	case c.expected == 0 || c.gathered:
		c.startLocked()
	case c.gather == nil:
		c.gather = time.AfterFunc(gatherTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.gathered = true
			c.startLocked()
		})
	}
}

// startLocked starts the goroutine that reads, unless it exists or nothing waits.
func (c *Catchup) startLocked() {
	if c.running || len(c.waiting) == 0 {
		return
	}
	if c.gather != nil {
		c.gather.Stop()
	}
	c.running = true
	go c.run()
}

// run reads until nothing waits.
func (c *Catchup) run() {
	for {
		c.mu.Lock()
		reads := c.waiting
		c.waiting = nil
		c.running = len(reads) > 0
		c.mu.Unlock()
		if len(reads) == 0 {
			return
		}
		c.answer(reads)
		for _, r := range reads {
			close(r.done)
		}
	}
}

// answer sets the results of reads. Only this goroutine takes from what the client can receive.
func (c *Catchup) answer(reads []*missedRead) {
	c.mu.Lock()
	b := broker.Batch{Topics: make([]broker.TopicQuery, len(reads))}
	for i, r := range reads {
		b.Topics[i] = r.query
	}
	alone := len(reads) == 1
	if alone { // one round trip is enough, since nothing has to be divided
		b.MaxMessages, b.MaxBytes = min(reads[0].topic.limit, c.messages), c.bytes
		b.Topics[0].Limit = b.MaxMessages + 1 // if there are as many, they are omitted
	}
	c.mu.Unlock()
	pages := c.readAll(reads, b)
	var rest []*missedRead
	for i, r := range reads {
		if r.err != nil || !r.locate(pages[i].Page) || r.count == 0 {
			continue
		}
		if alone && r.after == r.since.Offset {
			c.take(r, pages[i])
			continue
		}
		rest = append(rest, r)
	}
	c.readPublications(rest)
}

// readAll sets the errors of reads, or returns a page for each: from the store, unless this node has it.
func (c *Catchup) readAll(reads []*missedRead, b broker.Batch) []broker.BatchPage {
	pages := make([]broker.BatchPage, len(reads))
	stored := broker.Batch{}
	var indexes []int // of the topics of stored
	for i, r := range reads {
		page, ok := r.sequencer.recentPage(r.since, b.Topics[i])
		if !ok {
			stored.Topics, indexes = append(stored.Topics, b.Topics[i]), append(indexes, i)
			continue
		}
		r.kept, pages[i] = true, takePage(&b, page)
	}
	if len(indexes) == 0 {
		return pages
	}
	stored.MaxMessages, stored.MaxBytes = b.MaxMessages, b.MaxBytes
	read, err := c.histories.ReadAll(reads[0].ctx, stored)
	for n, i := range indexes {
		r := reads[i]
		if r.kept, r.err = false, err; err == nil {
			pages[i], r.err = read[n], read[n].Err
		}
	}
	return pages
}

// takePage takes the publications of a page from the bounds of a batch, or omits them, as a store does.
func takePage(b *broker.Batch, page broker.Page) broker.BatchPage {
	size := packetBytes(page.Publications)
	fits := len(page.Publications) <= b.MaxMessages
	if fits {
		b.MaxMessages -= len(page.Publications)
		fits = size <= b.MaxBytes
	}
	if !fits {
		page.Publications = nil
		return broker.BatchPage{Page: page, Omitted: true}
	}
	b.MaxBytes -= size
	return broker.BatchPage{Page: page}
}

// locate finds what follows the client's position in a history. It reports false if that cannot be recovered.
func (r *missedRead) locate(page broker.Page) bool {
	r.after, r.current = r.since.Offset, page.Position
	switch {
	case page.Position.Epoch == r.since.Epoch:
	case page.Previous.Epoch != r.since.Epoch:
		return false
	default:
		r.ended = &page.Previous
		r.after = min(r.after, page.Previous.Offset) // offsets above it have been used again
	}
	if r.after > page.Position.Offset {
		return false
	}
	r.count = page.Position.Offset - r.after
	r.recoverable = r.count <= uint64(max(r.topic.limit, 0))
	return r.recoverable
}

// readPublications reads the publications of topics, the fewest first, as long as the client can receive
// them.
func (c *Catchup) readPublications(reads []*missedRead) {
	slices.SortStableFunc(reads, func(a, b *missedRead) int { return cmp.Compare(a.count, b.count) })
	c.mu.Lock()
	b := broker.Batch{MaxMessages: c.messages, MaxBytes: c.bytes}
	c.mu.Unlock()
	fitting, left := 0, uint64(b.MaxMessages)
	for ; fitting < len(reads) && reads[fitting].count <= left; fitting++ {
		r := reads[fitting]
		left -= r.count
		r.query.After, r.query.Epoch, r.query.Limit = r.after, "", int(r.count)
		b.Topics = append(b.Topics, r.query)
	}
	for _, r := range reads[fitting:] {
		r.recoverable = false
	}
	if fitting == 0 {
		return
	}
	pages := c.readAll(reads[:fitting], b)
	for i, r := range reads[:fitting] {
		switch {
		case r.err != nil:
		case pages[i].Position.Epoch != r.current.Epoch:
			r.err = errFailedOver // so the client tries again
		default:
			c.take(r, pages[i])
		}
	}
}

// take makes a page the result of a read. What was omitted because of its bytes counts, too, because the store has
// looked at it.
func (c *Catchup) take(r *missedRead, page broker.BatchPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.recoverable = !page.Omitted && len(page.Publications) == int(r.count) && page.Publications[0].Position.Offset == r.after+1
	if r.count <= uint64(c.messages) {
		c.messages -= int(r.count)
	}
	if !r.recoverable {
		return
	}
	r.publications = page.Publications
	r.topic.messages = len(page.Publications)
	r.topic.bytes = packetBytes(page.Publications)
	c.bytes -= r.topic.bytes
}

func packetBytes(publications []broker.Publication) (n int) {
	for _, p := range publications {
		n += len(p.Packet)
	}
	return n
}
