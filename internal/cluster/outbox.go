package cluster

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/pathqueue"
)

// An outbox numbers the messages of a node, publishes those of each partition in order, and
// announces those that are lost.
type outbox struct {
	link   Publisher
	name   string          // of this node
	ctx    context.Context //nolint:containedctx // of what is being published; done when the outbox is closed
	cancel context.CancelFunc
	queue  *pathqueue.Queue[outgoing]

	mu      sync.Mutex
	numbers sequences
	losses  map[string]loss // not announced yet, by channel
	packets int             // that wait or are being published, see loss
	state   outboxState
}

type outboxState byte

const (
	outboxOpen     outboxState = iota
	outboxFlushing             // packets are rejected
	outboxClosed               // everything is rejected
)

// An outgoing message is encoded.
type outgoing struct {
	Message
	kind      byte
	loss             // to record if the message is numbered and lost
	published func() // see outbox.send
}

const (
	maxWaitingBytes  = 32 << 20 // of a path
	messageOverhead  = 128      // bytes in memory in addition to the payload
	maxBatchBytes    = 1 << 20
	maxBatchMessages = 4096
	publishTimeout   = 10 * time.Second       // longer than a server pauses in general
	publishPause     = 100 * time.Millisecond // after a failure
)

func newOutbox(link Publisher, name string) *outbox {
	ctx, cancel := context.WithCancel(context.Background())
	o := &outbox{
		link:    link,
		name:    name,
		ctx:     ctx,
		cancel:  cancel,
		numbers: sequences{channels: map[string]*sequence{}},
		losses:  map[string]loss{},
	}
	most := pathqueue.Amount{Items: maxBatchMessages, Bytes: maxBatchBytes}
	o.queue = pathqueue.New(pathqueue.Config[outgoing]{
		Path: link.Path, Send: o.publishBatches, RoundTrips: 1, MaxBatch: most, MaxRoundTrip: most,
		Size: func(out outgoing) int { return len(out.Payload) + messageOverhead },
	})
	return o
}

// publish numbers and enqueues a packet, and returns at once. If the outbox is full, the number is
// lost, and receivers report it.
func (o *outbox) publish(channel Channel, packet []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != outboxOpen {
		return errors.Errorf(errors.Unavailable, "the node is closed; a packet of %d bytes was not sent", len(packet))
	}
	m := nodeMessage{kind: kindPacket, packet: packet}
	o.numbers.assign(channel, &m)
	if waiting, full := o.isFull(channel, packet); full {
		o.recordLossLocked(loss{channel, m.epoch, m.number, 0})
		return errors.Errorf(errors.ResourceExhausted,
			"%d bytes wait to be sent to other nodes and at most %d may; a packet of %d bytes was not sent", waiting, maxWaitingBytes, len(packet))
	}
	o.enqueueLocked(channel, &m, 1, nil)
	return nil
}

// send enqueues a message without a number, unless the outbox is closed. A presence packet is also
// dropped if the outbox is full. Published is called when the message was published without an
// error; it may be nil.
func (o *outbox) send(channel Channel, m nodeMessage, published func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == outboxClosed {
		return
	}
	if m.kind == kindPresence {
		if _, full := o.isFull(channel, m.packet); full || o.state != outboxOpen {
			return
		}
	}
	o.enqueueLocked(channel, &m, 0, published)
}

// heartbeat enqueues a heartbeat with its number.
func (o *outbox) heartbeat(channel Channel, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == outboxClosed {
		return
	}
	o.numbers.beat++
	packet := append(binary.AppendUvarint(nil, o.numbers.beat), payload...)
	o.enqueueLocked(channel, &nodeMessage{kind: kindHeartbeat, packet: packet}, 0, nil)
}

// isFull reports whether a packet exceeds what may wait on the path of a channel, and what does.
func (o *outbox) isFull(channel Channel, packet []byte) (waiting int, full bool) {
	waiting = o.queue.Bytes(channel.Partition)
	return waiting, waiting+len(packet) > maxWaitingBytes
}

// enqueueLocked adds a message unless the outbox is closed. If it is lost, so is that number of
// packets.
func (o *outbox) enqueueLocked(channel Channel, m *nodeMessage, packets int, published func()) {
	m.from = o.name
	o.packets += packets
	o.queue.Add(channel.Partition, outgoing{
		Message:   Message{Channel: channel, Payload: m.encode()},
		kind:      m.kind,
		loss:      loss{channel, m.epoch, m.number, packets},
		published: published,
	})
}

// publishBatches publishes messages of a path.
func (o *outbox) publishBatches(path string, batches []pathqueue.Batch[outgoing]) (pause time.Duration) {
	var messages []*Message
	var all []*outgoing
	for _, b := range batches {
		for i := range b.Items {
			all = append(all, &b.Items[i])
			messages = append(messages, &b.Items[i].Message)
		}
	}
	ctx, cancel := context.WithTimeout(o.ctx, publishTimeout)
	o.link.Publish(ctx, messages)
	cancel()
	for _, out := range all {
		if out.Err == nil && out.published != nil {
			out.published()
		}
	}
	if o.finish(path, all) {
		return publishPause
	}
	return 0
}

// finish records the results of messages of a path. It reports whether one has failed. Messages
// that failed are not published again: an error leaves open whether a message was published, and
// receivers need each at most once.
func (o *outbox) finish(path string, published []*outgoing) (failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	succeeded := false
	for _, out := range published {
		if out.Err == nil {
			succeeded = true
			o.packets -= out.packets
			continue
		}
		failed = true
		o.loseLocked(out)
	}
	switch {
	case o.state == outboxClosed:
	case succeeded:
		o.announceLossesLocked(func(c Channel) bool { return o.queue.Path(c.Partition) == path })
	case o.state == outboxFlushing: // do not wait for every batch to fail
		o.loseAllLocked(o.queue.DiscardPath(path))
	}
	return failed
}

// removeUnused ends the sequences that are not used.
func (o *outbox) removeUnused() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != outboxOpen {
		return
	}
	o.numbers.removeUnused(func(channel Channel, m *nodeMessage) {
		o.enqueueLocked(channel, m, 0, nil)
	})
}

// interrupt loses all packets that wait, because this process was paused for so long that they are
// outdated.
func (o *outbox) interrupt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loseAllLocked(o.queue.Discard())
}

// flush rejects further packets, and waits until nothing waits or ctx is done. Then it closes the
// outbox and returns the number of packets that were not published and that no receiver misses.
func (o *outbox) flush(ctx context.Context) (unsent int) {
	o.mu.Lock()
	o.state = outboxFlushing
	o.announceLossesLocked(func(Channel) bool { return true })
	o.mu.Unlock()
	o.queue.Wait(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shutLocked()
	unsent = o.packets // those that are being published may fail
	for _, l := range o.losses {
		unsent += l.packets
	}
	return unsent
}

// close discards everything.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shutLocked()
}

func (o *outbox) shutLocked() {
	o.state = outboxClosed
	o.loseAllLocked(o.queue.Close())
	o.cancel()
}
