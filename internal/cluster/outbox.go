package cluster

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An outbox publishes the messages of a node, those of each partition in order. Messages that wait
// at the same time share a round trip. A partition with messages belongs to one sender, that of
// its path, until it is empty: so at most one batch of it is published at a time, also if its
// path changes.
type outbox struct {
	link   Publisher
	name   string          // of this node
	ctx    context.Context //nolint:containedctx // of the goroutines; done when the outbox is closed
	cancel context.CancelFunc

	mu         sync.Mutex
	numbers    sequences
	losses     map[string]loss // not announced yet, by channel
	partitions map[int]*partition
	senders    map[string]*sender // by path
	waiting    int                // messages that wait or are being published
	packets    int                // those of waiting, see loss
	state      outboxState
	emptied    chan struct{} // closed when waiting is 0 after flush began
}

type outboxState byte

const (
	outboxOpen     outboxState = iota
	outboxFlushing             // packets are rejected
	outboxClosed               // everything is rejected
)

// A partition holds the messages that wait.
type partition struct {
	waiting []outgoing
	bytes   int
	sender  *sender // nil while nothing waits and nothing is being published
}

// A sender publishes the partitions of one path. While running is set, one goroutine runs it,
// which alone uses batch and publishing.
type sender struct {
	ready      []*partition // with messages, none of which is being published
	bytes      int          // of messages that wait or are being published
	running    bool
	batch      []outgoing   // the first messages of some partitions, one partition after the other
	publishing []*partition // those of batch
}

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
	return &outbox{
		link:       link,
		name:       name,
		ctx:        ctx,
		cancel:     cancel,
		numbers:    sequences{channels: map[string]*sequence{}},
		losses:     map[string]loss{},
		partitions: map[int]*partition{},
		senders:    map[string]*sender{},
		emptied:    make(chan struct{}),
	}
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
	if s := o.senderOf(channel); s.isFull(packet) {
		o.recordLossLocked(loss{channel, m.epoch, m.number, 0})
		return errors.Errorf(errors.ResourceExhausted,
			"%d bytes wait to be sent to other nodes and at most %d may; a packet of %d bytes was not sent", s.bytes, maxWaitingBytes, len(packet))
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
	presence := m.kind == kindPresence
	if o.state == outboxClosed || presence && (o.state != outboxOpen || o.senderOf(channel).isFull(m.packet)) {
		return
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

// senderOf returns the sender that the next message on a channel will belong to.
func (o *outbox) senderOf(channel Channel) *sender {
	if p := o.partitions[channel.Partition]; p != nil && p.sender != nil {
		return p.sender
	}
	path := o.link.Path(channel.Partition)
	s := o.senders[path]
	if s == nil {
		s = &sender{}
		o.senders[path] = s
	}
	return s
}

func (s *sender) isFull(packet []byte) bool { return s.bytes+len(packet) > maxWaitingBytes }

// enqueueLocked adds a message in any state. If it is lost, so is that number of packets.
func (o *outbox) enqueueLocked(channel Channel, m *nodeMessage, packets int, published func()) {
	m.from = o.name
	out := outgoing{
		Message:   Message{Channel: channel, Payload: m.encode()},
		kind:      m.kind,
		loss:      loss{channel, m.epoch, m.number, packets},
		published: published,
	}
	p := o.partitions[channel.Partition]
	if p == nil {
		p = &partition{}
		o.partitions[channel.Partition] = p
	}
	if p.sender == nil {
		o.makeReadyLocked(p, o.senderOf(channel))
	}
	p.waiting = append(p.waiting, out)
	p.bytes += out.size()
	p.sender.bytes += out.size()
	o.waiting++
	o.packets += packets
}

// makeReadyLocked gives a partition to a sender.
func (o *outbox) makeReadyLocked(p *partition, s *sender) {
	p.sender = s
	s.bytes += p.bytes
	s.ready = append(s.ready, p)
	if !s.running {
		s.running = true
		go o.run(s)
	}
}

func (out *outgoing) size() int { return len(out.Payload) + messageOverhead }

// run publishes until no message of the path waits.
func (o *outbox) run(s *sender) {
	for o.nextBatch(s) {
		messages := make([]*Message, len(s.batch))
		for i := range s.batch {
			messages[i] = &s.batch[i].Message
		}
		ctx, cancel := context.WithTimeout(o.ctx, publishTimeout)
		o.link.Publish(ctx, messages)
		cancel()
		for i := range s.batch {
			if out := &s.batch[i]; out.Err == nil && out.published != nil {
				out.published()
			}
		}
		if o.finish(s) {
			select {
			case <-time.After(publishPause):
			case <-o.ctx.Done():
			}
		}
	}
}

// nextBatch moves the first messages of the sender's partitions to its batch. It returns false if
// there are none.
func (o *outbox) nextBatch(s *sender) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for len(s.ready) > 0 && len(s.batch) < maxBatchMessages && bytes < maxBatchBytes {
		p := s.ready[0]
		s.ready = s.ready[1:]
		n := 0
		for before := bytes; n < len(p.waiting) && len(s.batch)+n < maxBatchMessages && bytes < maxBatchBytes; n++ {
			bytes += p.waiting[n].size()
			p.bytes -= bytes - before
			before = bytes
		}
		s.batch = append(s.batch, p.waiting[:n]...)
		s.publishing = append(s.publishing, p)
		clear(p.waiting[:n]) // the payloads are freed with the batch
		if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
			p.waiting = nil
		}
	}
	s.running = len(s.batch) > 0
	return s.running
}

// finish records the result of the batch and makes its partitions ready again. It reports whether
// a message has failed. Messages that failed are not published again: an error leaves open whether
// a message was published, and receivers need each at most once.
func (o *outbox) finish(s *sender) (failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	succeeded := false
	for i := range s.batch {
		out := &s.batch[i]
		s.bytes -= out.size()
		if out.Err != nil {
			failed = true
			o.recordFailure(out)
		} else {
			succeeded = true
		}
		o.remove(out)
	}
	for _, p := range s.publishing {
		p.sender = nil
		if len(p.waiting) > 0 { // its path may have changed
			s.bytes -= p.bytes
			o.makeReadyLocked(p, o.senderOf(p.waiting[0].Channel))
		}
	}
	clear(s.batch)
	s.batch, s.publishing = s.batch[:0], s.publishing[:0]
	switch {
	case o.state == outboxClosed:
		o.discardWaiting()
	case succeeded:
		o.announceLosses(s)
	case o.state == outboxFlushing: // do not wait for every batch to fail
		o.discardPath(s)
	}
	o.checkEmptiedLocked()
	return failed
}

// remove counts a message that neither waits nor is being published.
func (o *outbox) remove(out *outgoing) {
	o.waiting--
	o.packets -= out.packets
}

// discardPath discards what waits on a path.
func (o *outbox) discardPath(s *sender) {
	for _, p := range s.ready {
		o.discardPartitionLocked(p)
		p.sender = nil
	}
	s.ready = nil
}

// discardPartitionLocked discards what waits in a partition of a sender.
func (o *outbox) discardPartitionLocked(p *partition) {
	for i := range p.waiting {
		o.recordFailure(&p.waiting[i])
		o.remove(&p.waiting[i])
	}
	p.sender.bytes -= p.bytes
	p.waiting, p.bytes = nil, 0
}

func (o *outbox) discardWaiting() {
	for _, s := range o.senders {
		o.discardPath(s)
	}
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
	o.discardWaiting()
	for _, p := range o.partitions {
		if len(p.waiting) > 0 { // a batch of it is being published
			o.discardPartitionLocked(p)
		}
	}
	o.checkEmptiedLocked()
}

// flush rejects further packets, and waits until nothing waits or ctx is done. Then it closes the
// outbox and returns the number of packets that were not published and that no receiver misses.
func (o *outbox) flush(ctx context.Context) (unsent int) {
	o.mu.Lock()
	o.state = outboxFlushing
	for _, s := range o.senders {
		o.announceLosses(s)
	}
	o.checkEmptiedLocked()
	o.mu.Unlock()
	select {
	case <-o.emptied:
	case <-ctx.Done():
	}
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
	o.discardWaiting()
	o.cancel()
}

func (o *outbox) checkEmptiedLocked() {
	if o.state != outboxFlushing || o.waiting > 0 {
		return
	}
	select {
	case <-o.emptied:
	default:
		close(o.emptied)
	}
}
