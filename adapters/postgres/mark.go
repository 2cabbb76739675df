package postgres

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/rules"
)

// A subscription is that of a link to a channel. link.mu guards isConfirmed.
type subscription struct {
	channel     string
	isConfirmed bool
}

// marks confirm subscriptions: a link notifies itself after a request. When that arrives,
// everything that was published before the request has arrived, and everything after it will. It
// also proves that notifications arrive, which they do not through PgBouncer in transaction mode.
// link.mu guards it.
type marks struct {
	requested []*subscription // that no mark was sent for
	sent      []mark          // in the order of their numbers
	number    uint64          // of the last one
	isRunning bool            // link.mark
}

// A mark confirms subscriptions.
type mark struct {
	number        uint64
	subscriptions []*subscription
}

const markPause = 100 * time.Millisecond // after a failure

// requestLocked requests a call of Confirmed.
func (l *link) requestLocked(sub *subscription) {
	l.marks.requested = append(l.marks.requested, sub)
	if !l.marks.isRunning {
		l.marks.isRunning = true
		go l.mark()
	}
}

// mark sends marks until nothing is requested.
func (l *link) mark() {
	for {
		m, c := l.nextMark()
		if c == nil {
			return
		}
		message := &cluster.Message{Channel: cluster.Channel{Name: markPrefix}, Payload: binary.AppendUvarint(nil, m.number)}
		if l.Publish(l.ctx, []*cluster.Message{message}); message.Err == nil {
			continue
		}
		_ = rules.Sleep(l.ctx, markPause)
		l.mu.Lock()
		if l.current == c { // otherwise all subscriptions were requested again
			l.marks.requested = append(m.subscriptions, l.marks.requested...)
		}
		l.mu.Unlock()
	}
}

// nextMark returns the next mark and the connection that it is for. If nothing is requested, the
// connection is nil, and mark ends.
func (l *link) nextMark() (m mark, c *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marks.requested) == 0 || l.current == nil || l.ctx.Err() != nil {
		l.marks.isRunning = false
		return m, nil
	}
	l.marks.number++
	m = mark{l.marks.number, l.marks.requested}
	l.marks.requested = nil
	l.marks.sent = append(l.marks.sent, m)
	return m, l.current
}

// marked confirms subscriptions. A mark that failed may have arrived nevertheless, so a
// subscription may be confirmed twice.
func (l *link) marked(payload []byte) {
	number, _ := binary.Uvarint(payload)
	var confirmed []*subscription
	l.mu.Lock()
	for len(l.marks.sent) > 0 && l.marks.sent[0].number <= number {
		if l.marks.sent[0].number == number {
			confirmed = l.marks.sent[0].subscriptions
		}
		l.marks.sent = l.marks.sent[1:]
	}
	l.mu.Unlock()
	for _, sub := range confirmed {
		l.confirm(sub)
	}
}

// confirm calls Confirmed, unless the subscription has ended.
func (l *link) confirm(sub *subscription) {
	l.mu.Lock()
	isCurrent := l.subscribed[sub.channel] == sub && l.current != nil && l.ctx.Err() == nil
	sub.isConfirmed = sub.isConfirmed || isCurrent
	l.mu.Unlock()
	switch {
	case !isCurrent:
	case sub.channel[:1] == historyPrefix:
		l.engine.reconnected(sub.channel[1:])
	default:
		l.events.Confirmed(sub.channel)
	}
}
