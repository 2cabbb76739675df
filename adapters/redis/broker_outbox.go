package redis

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// An outbox publishes messages in order. Those that wait at the same time share a round trip.
type outbox struct {
	client  goredis.UniversalClient
	name    string // of this node
	sharded bool

	mu      sync.Mutex
	waiting []outgoing
	bytes   int // of waiting
	numbers sequences
	losses  map[string]loss // not announced yet, by channel
	running bool
	closed  bool
}

// An outgoing message is encoded.
type outgoing struct {
	channel  string
	numbered bool
	loss     // to record if the message is numbered and lost
	text     []byte
}

// A loss begins with a number of an epoch.
type loss struct {
	epoch uint32
	first uint64
}

const (
	maxWaitingBytes = 16 << 20
	maxBatch        = 256 // messages in a round trip
	publishTimeout  = time.Second
	publishPause    = 100 * time.Millisecond // after a failure
)

func newOutbox(client goredis.UniversalClient, name string, sharded bool) *outbox {
	return &outbox{client: client, name: name, sharded: sharded, numbers: sequences{channels: map[string]*sequence{}}, losses: map[string]loss{}}
}

// enqueue adds a message and returns at once. If the outbox is full, the message is lost.
func (o *outbox) enqueue(channel string, m nodeMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	numbered := m.kind == kindPacket
	if numbered {
		o.numbers.assign(channel, &m)
	}
	if o.bytes+len(m.packet) > maxWaitingBytes {
		if numbered {
			o.recordLoss(channel, loss{m.epoch, m.number})
		}
		return
	}
	o.enqueueNow(channel, &m)
}

// enqueueNow adds a message in any state. It must be called with the lock held.
func (o *outbox) enqueueNow(channel string, m *nodeMessage) {
	m.from = o.name
	text := m.encode()
	o.waiting = append(o.waiting, outgoing{channel, m.numbered(), loss{m.epoch, m.number}, text})
	o.bytes += len(text)
	if !o.running {
		o.running = true
		go o.run()
	}
}

// closeWith enqueues a last message and closes the outbox in one step, so that no heartbeat or
// packet follows it.
func (o *outbox) closeWith(channel string, m nodeMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.enqueueNow(channel, &m)
	o.closed = true
}

// close makes the outbox ignore further messages. Those that wait are published.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// run publishes until no message waits.
func (o *outbox) run() {
	for {
		batch := o.nextBatch()
		if len(batch) == 0 {
			return
		}
		if failed := o.publish(batch); len(failed) > 0 {
			o.recordFailures(failed)
			time.Sleep(publishPause)
			continue
		}
		o.announceLosses()
	}
}

func (o *outbox) nextBatch() []outgoing {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.waiting), maxBatch)
	if n == 0 {
		o.running, o.waiting = false, nil
		return nil
	}
	batch := o.waiting[:n:n]
	o.waiting = o.waiting[n:]
	for _, out := range batch {
		o.bytes -= len(out.text)
	}
	return batch
}

// publish returns the messages that failed. They are not sent again: an error leaves open
// whether Redis has published the message, and receivers need each at most once.
func (o *outbox) publish(batch []outgoing) (failed []outgoing) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	pipe := o.client.Pipeline()
	results := make([]*goredis.IntCmd, len(batch))
	for i, out := range batch {
		if o.sharded {
			results[i] = pipe.SPublish(ctx, out.channel, out.text)
		} else {
			results[i] = pipe.Publish(ctx, out.channel, out.text)
		}
	}
	_, _ = pipe.Exec(ctx) // each result has its error
	for i, result := range results {
		if result.Err() != nil {
			failed = append(failed, batch[i])
		}
	}
	return failed
}

func (o *outbox) recordFailures(failed []outgoing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, out := range failed {
		if out.numbered {
			o.recordLoss(out.channel, out.loss)
		}
	}
}

// recordLoss must be called with the lock held.
func (o *outbox) recordLoss(channel string, l loss) {
	if known, ok := o.losses[channel]; ok && known.epoch == l.epoch {
		l.first = min(l.first, known.first)
	}
	o.losses[channel] = l
}

// announceLosses enqueues a gap message on every channel with a loss. Its number shows receivers
// what is missing before it, also if no packet follows.
func (o *outbox) announceLosses() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for channel, l := range o.losses {
		if c := o.numbers.channels[channel]; c == nil || c.epoch != l.epoch {
			// The sequence of the loss was removed. A number of the new one that is never
			// sent makes receivers find a loss there.
			o.numbers.assign(channel, &nodeMessage{})
			l.first = 0
		}
		m := nodeMessage{kind: kindGap, packet: binary.AppendUvarint(nil, l.first)}
		o.numbers.assign(channel, &m)
		o.enqueueNow(channel, &m)
	}
	clear(o.losses)
}
