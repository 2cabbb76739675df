package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"
)

// marks recognizes publications by a text that the server copies from the message: the mark of the
// run and the number of the message. Publications of other origin do not count. A message counts as
// published if the server has answered it without an error, or if a connection has received it.
type marks struct {
	*run
	prefix string

	mu                sync.Mutex
	accepted, arrived bitset // numbers of messages
	received          int64
	own               int64 // of these, by the connection that has sent the message
	duplicates        int64
	deliveries        histogram
	latest            time.Time // of all receipts
}

func newMarks(r *run) *marks {
	return &marks{run: r, prefix: "load-" + strings.ToLower(rand.Text()[:8]) + "-"}
}

// markOf returns the mark of a message. It consists of letters, digits and hyphens, and its last
// character is not a digit, so that another digit behind it does not change the number.
func markOf(r reach, number int64) string {
	if m, ok := r.(*marks); ok {
		return m.prefix + strconv.FormatInt(number, 10) + "-"
	}
	return ""
}

func (m *marks) begin(context.Context, []*conn) {}

func (m *marks) accept(sent message, accepted bool) {
	if !m.counts(sent.due) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accepted.put(sent.number, accepted)
}

// receive counts all marks in a message.
func (m *marks) receive(c *conn, _ *envelope, text []byte, now time.Time) {
	for {
		_, rest, found := bytes.Cut(text, []byte(m.prefix))
		if !found {
			return
		}
		digits, _, ended := bytes.Cut(rest[:min(len(rest), 20)], []byte("-"))
		if number, err := strconv.ParseInt(string(digits), 10, 64); err == nil && ended {
			m.receiveOne(c, number, now)
		}
		text = rest
	}
}

func (m *marks) receiveOne(c *conn, number int64, now time.Time) {
	due := m.dueOf(number)
	if !m.counts(due) {
		return
	}
	c.receiving.Lock()
	again := c.seen.has(number)
	c.seen.put(number, true)
	c.receiving.Unlock()
	own := number%int64(c.conns) == int64(c.turn)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = now
	if again {
		m.duplicates++
		return
	}
	m.arrived.put(number, true)
	m.received++
	if own {
		m.own++
	}
	m.deliveries.add(now.Sub(due))
}

// quiet is the time after which the messages to their own senders are no longer awaited, if there was
// none at all.
const quiet = time.Second

func (m *marks) end(ctx context.Context, conns []*conn) *Reach {
	waitFor(ctx, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		published := m.publishedLocked()
		switch all := published * int64(len(conns)); {
		case m.received >= all:
			return true
		default:
			return m.received == all-published && m.own == 0 && time.Since(m.latest) > quiet
		}
	})
	return m.report()
}

func (m *marks) publishedLocked() (n int64) {
	for i := range max(len(m.accepted), len(m.arrived)) {
		n += int64(bits.OnesCount64(m.accepted.word(i) | m.arrived.word(i)))
	}
	return n
}

// report expects no message on the connection that has sent it, if the server has sent none of them
// back.
func (m *marks) report() *Reach {
	m.mu.Lock()
	defer m.mu.Unlock()
	receivers := int64(m.conns)
	if m.own == 0 && m.received > 0 {
		receivers--
	}
	return &Reach{
		Rule: "marks", Expected: m.publishedLocked() * receivers, Received: m.received, Duplicates: m.duplicates,
		Latency: m.deliveries.percentiles(),
	}
}

// A bitset is a set of numbers.
type bitset []uint64

func (b bitset) word(i int) uint64 {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func (b bitset) has(n int64) bool { return b.word(int(n/64))>>(n%64)&1 == 1 }

func (b *bitset) put(n int64, in bool) {
	for int(n/64) >= len(*b) {
		*b = append(*b, 0)
	}
	if in {
		(*b)[n/64] |= 1 << (n % 64)
	} else {
		(*b)[n/64] &^= 1 << (n % 64)
	}
}
