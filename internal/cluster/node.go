package cluster

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Broker is a [broker.Broker] above an engine. It is safe for concurrent use.
type Broker struct{ engine Engine }

var _ broker.Broker = (*Broker)(nil)

// New returns a broker. It sends nothing before Connect.
func New(engine Engine) *Broker { return &Broker{engine} }

// Connect adds a node, a *[Node].
func (b *Broker) Connect(handler broker.Callbacks) broker.Node {
	s := &Node{
		handler: handler.Complete(),
		name:    rand.Text(),
		engine:  b.engine,
		peers:   peers{start: time.Now(), byName: map[string]*peer{}, left: map[string]time.Time{}, forgotten: map[string]struct{}{}},
		subs:    subscriptions{byChannel: map[string]*subscription{}},
		ready:   make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.members.init(s)
	s.nodes, s.direct = b.engine.Channel(NodesChannel, ""), b.engine.Channel(NodeChannel, s.name)
	// The engine may call events before Connect returns. They wait for the fields below.
	s.link = b.engine.Connect(s.name, Events{Received: s.received, Confirmed: s.confirmed, Interrupted: s.interrupted})
	s.outbox = newOutbox(s.link, s.name)
	close(s.ready)
	s.link.SetSubscribed(s.nodes, true)
	s.link.SetSubscribed(s.direct, true)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s
}

// A Node is this process as a node of the cluster.
type Node struct {
	handler broker.Callbacks
	name    string // random, so that a restarted process is a new node
	engine  Engine
	link    Link
	outbox  *outbox
	nodes   Channel // heartbeats, leave messages and presence queries
	direct  Channel // presence packets to this node
	ready   chan struct{}
	cancel  context.CancelFunc
	stopped chan struct{} // closed when run has ended
	peers   peers
	subs    subscriptions
	members members
	probes  probes

	closed atomic.Bool
	gate   executor.Gate // calls the functions of the handlers
}

// Name returns the name of the node.
func (s *Node) Name() string { return s.name }

// Nodes returns the other nodes from which this one receives messages.
func (s *Node) Nodes() (others []string, all bool) {
	if s.closed.Load() {
		return nil, false
	}
	return s.peers.others(s.name)
}

// Publish sends a packet to the other nodes that subscribe to topic.
func (s *Node) Publish(topic string, packet []byte) error {
	return s.outbox.publish(s.engine.Channel(TopicChannel, topic), packet)
}

// leaveTimeout is for the leave message if Close's context is done.
const leaveTimeout = 250 * time.Millisecond

// Close sends what waits, then the leave message. If that is lost, the other nodes expire this one.
func (s *Node) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		<-s.stopped
		return nil
	}
	s.gate.Close()
	unsent := s.outbox.flush(ctx) // with heartbeats, since it may take long
	s.cancel()
	<-s.stopped
	if ctx.Err() != nil || unsent > 0 {
		// The server may not respond. The leave message delays Close a little at most.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
	}
	s.leave(ctx)
	if unsent > 0 {
		return errors.Errorf(errors.Unavailable, "broker: %d packets for other nodes were not sent", unsent)
	}
	return nil
}

// leave publishes the leave message and closes the link. It does not wait for longer than ctx.
func (s *Node) leave(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := nodeMessage{kind: kindLeave, from: s.name}
		s.link.Publish(ctx, []*Message{{Channel: s.nodes, Payload: m.encode()}})
		s.link.Close()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Kill ends the node as a crash does, for tests.
func (s *Node) Kill() {
	s.closed.Store(true)
	s.outbox.close()
	s.cancel()
	s.gate.Close()
	s.link.Close()
}

const (
	tickInterval  = 50 * time.Millisecond // as presence requires it
	checkInterval = 250 * time.Millisecond
	probeInterval = 500 * time.Millisecond
)

// run publishes heartbeats and probes, expires peers and reports losses until ctx ends.
func (s *Node) run(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	var heartbeatAt, probeAt, checkAt time.Time
	last := time.Now()
	for {
		now := time.Now()
		if pause := now.Sub(last); pause > probeTimeout {
			s.wake(pause)
		}
		if !now.Before(heartbeatAt) {
			heartbeatAt = now.Add(heartbeatInterval - tickInterval/2)
			s.heartbeat()
		}
		if !now.Before(probeAt) {
			probeAt = now.Add(probeInterval - tickInterval/2)
			s.sendProbes()
		}
		if !now.Before(checkAt) {
			checkAt = now.Add(checkInterval - tickInterval/2)
			s.expirePeers()
			s.reportLosses()
		}
		s.members.tick(now)
		last = time.Now()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Node) heartbeat() {
	s.outbox.heartbeat(s.nodes, s.members.heartbeat(time.Now()))
	s.outbox.removeUnused()
}

// wake handles a pause of this process. What the connections have buffered still arrives. What
// waits to be published is outdated if the pause was longer than an attempt to publish it may take.
func (s *Node) wake(pause time.Duration) {
	s.probes.restart()
	if pause > publishTimeout {
		s.outbox.interrupt()
	}
}

// expirePeers reports the peers that have failed.
func (s *Node) expirePeers() {
	failed, forgotten := s.peers.expire(s.name)
	for _, name := range failed {
		s.members.peerFailed(name)
		s.gate.Do(func() { s.handler.NodeLeft(name) })
	}
	for _, name := range forgotten {
		s.forgetTrackers(name)
	}
}

// confirmed handles the confirmation of a subscription by the engine.
func (s *Node) confirmed(channel string) {
	<-s.ready
	if channel == s.nodes.Name {
		s.peers.confirm()
	} else if sub := s.subs.find(channel); sub != nil {
		s.confirmedTopic(sub)
	}
}

// interrupted handles the interruption of subscriptions.
func (s *Node) interrupted(channels []string) {
	<-s.ready
	for _, channel := range channels {
		if channel == s.nodes.Name {
			s.peers.interrupt()
		} else if sub := s.subs.find(channel); sub != nil {
			sub.interruptedTopic()
		}
	}
}

// received handles a message. Anything else on the channel is ignored.
func (s *Node) received(channel string, payload []byte) {
	<-s.ready
	m, ok := decodeMessage(payload)
	if !ok {
		return
	}
	if m.from == s.name {
		s.receivedOwn(channel, &m)
		return
	}
	s.peers.markAlive(m.from)
	switch m.kind {
	case kindLeave:
		if s.peers.leave(m.from) {
			s.members.peerLeft(m.from)
			s.gate.Do(func() { s.handler.NodeLeft(m.from) })
		}
		s.forgetTrackers(m.from)
	case kindHeartbeat:
		if payload, ok := s.peers.recordBeat(&m); ok {
			s.members.peerHeartbeat(m.from, payload)
		}
	case kindPresence:
		s.members.receive(m.from, m.packet)
	case kindPacket, kindGap, kindEnd:
		if sub := s.subs.find(channel); sub != nil {
			s.deliver(sub, &m)
		}
	}
}

// receivedOwn handles a message of this node.
func (s *Node) receivedOwn(channel string, m *nodeMessage) {
	switch m.kind {
	case kindHeartbeat:
		s.peers.markAlive(s.name)
	case kindProbe:
		s.probes.returned(channel, m)
	}
}
