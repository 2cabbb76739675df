package redis

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
)

// A subscriber receives topics on one connection. On a Cluster, each is connected to the server
// that has the slot of its prefix.
type subscriber struct {
	session *session
	client  goredis.UniversalClient
	prefix  string // of channels
	sharded bool
	changes executor.FuncQueue
	outbox  *outbox

	mu      sync.Mutex
	pubsub  *goredis.PubSub // nil while there is no connection
	topics  map[string]*topicState
	changed []string // channels for applyChanges
}

// A topicState is the state of one subscription.
type topicState struct {
	topic     string
	wanted    bool // the session subscribes to the topic
	requested bool // SUBSCRIBE was sent, and no UNSUBSCRIBE after it
	pending   int  // SUBSCRIBE commands without a response yet
	confirmed bool // Subscribed was called since the last change
	trackers  map[string]*sequenceTracker
}

const (
	pingAfter   = time.Second // of silence; after as much again the connection is replaced
	maxPause    = time.Second // before the next connection
	maxChannels = 500         // in one command
)

func (s *subscriber) channel(topic string) string { return keyName(s.prefix+":topic", []string{topic}) }

// nodesChannel is the channel of heartbeats and leave messages, which is that of the first
// subscriber. The others subscribe to theirs, where nothing is published, because a sharded
// subscription selects the server to connect to.
func (s *subscriber) nodesChannel() string { return s.prefix + ":nodes" }

// setSubscribed subscribes or unsubscribes. It returns at once.
func (s *subscriber) setSubscribed(topic string, wanted bool) {
	s.mu.Lock()
	channel := s.channel(topic)
	state := s.topics[channel]
	if state == nil {
		state = &topicState{topic: topic, trackers: map[string]*sequenceTracker{}}
		s.topics[channel] = state
	}
	state.wanted, state.confirmed = wanted, false
	if !wanted {
		clear(state.trackers)
	}
	s.changed = append(s.changed, channel)
	s.mu.Unlock()
	s.changes.Add(s.applyChanges)
}

// applyChanges sends the commands for the changed channels. It runs in the queue alone.
func (s *subscriber) applyChanges() {
	s.mu.Lock()
	pubsub := s.pubsub
	var subscribe, unsubscribe, unchanged []string
	for _, channel := range s.changed {
		state := s.topics[channel]
		switch {
		case state == nil:
		case pubsub == nil: // the next connection subscribes to everything
			if !state.wanted {
				delete(s.topics, channel)
			}
		case state.wanted && !state.requested:
			state.requested = true
			state.pending++
			subscribe = append(subscribe, channel)
		case state.wanted && state.pending == 0 && !state.confirmed: // Unsubscribe and Subscribe, with no command between them
			state.confirmed = true
			unchanged = append(unchanged, state.topic)
		case !state.wanted && state.requested:
			state.requested = false
			unsubscribe = append(unsubscribe, channel)
			s.removeUnwanted(channel, state)
		}
	}
	s.changed = nil
	s.mu.Unlock()
	for _, topic := range unchanged {
		s.session.handler.Subscribed(topic)
	}
	if pubsub != nil {
		s.send(pubsub, subscribe, unsubscribe)
	}
}

// send ignores errors: the goroutine that receives detects a broken connection.
func (s *subscriber) send(pubsub *goredis.PubSub, subscribe, unsubscribe []string) {
	sendSubscribe, sendUnsubscribe := pubsub.Subscribe, pubsub.Unsubscribe
	if s.sharded {
		sendSubscribe, sendUnsubscribe = pubsub.SSubscribe, pubsub.SUnsubscribe
	}
	for part := range slices.Chunk(unsubscribe, maxChannels) {
		_ = sendUnsubscribe(context.Background(), part...)
	}
	for part := range slices.Chunk(subscribe, maxChannels) {
		_ = sendSubscribe(context.Background(), part...)
	}
}

// removeUnwanted removes the state of an unwanted topic unless a response is pending, which
// would otherwise be counted for a later subscription. It must be called with the lock held.
func (s *subscriber) removeUnwanted(channel string, state *topicState) {
	if !state.wanted && state.pending == 0 {
		delete(s.topics, channel)
	}
}

// run keeps a connection until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	pause := maxPause / 16
	for ctx.Err() == nil {
		began := time.Now()
		s.listen(ctx)
		if time.Since(began) > maxPause {
			pause = maxPause / 16
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, maxPause)
	}
}

// listen opens a connection and receives until it fails or ctx ends.
func (s *subscriber) listen(ctx context.Context) {
	var pubsub *goredis.PubSub
	if s.sharded {
		pubsub = s.client.SSubscribe(ctx, s.nodesChannel())
	} else {
		pubsub = s.client.Subscribe(ctx, s.nodesChannel())
	}
	defer func() { _ = pubsub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = pubsub.Close() })
	defer stop()
	silent := false
	for {
		message, err := pubsub.ReceiveTimeout(ctx, pingAfter)
		timeout, isNet := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			silent = false
			if !s.handle(pubsub, message) {
				s.disconnected()
				return
			}
		case isNet && timeout.Timeout() && !silent && pubsub.Ping(ctx) == nil:
			silent = true
		case ctx.Err() != nil:
			return
		default:
			s.disconnected()
			return
		}
	}
}

// handle returns false if the connection must be replaced.
func (s *subscriber) handle(pubsub *goredis.PubSub, message any) bool {
	switch m := message.(type) {
	case *goredis.Message:
		s.receive(m.Channel, []byte(m.Payload))
	case *goredis.Subscription:
		switch {
		case m.Channel == s.nodesChannel():
			if m.Kind == "sunsubscribe" {
				return false // its slot has moved
			}
			s.connected(pubsub)
		case m.Kind == "subscribe" || m.Kind == "ssubscribe":
			s.subscribeConfirmed(m.Channel)
		default:
			return s.unsubscribeExpected(m.Channel)
		}
	}
	return true
}

// connected subscribes to all topics on a new connection.
func (s *subscriber) connected(pubsub *goredis.PubSub) {
	s.mu.Lock()
	reconnected := s.pubsub == pubsub // by go-redis, which does not report it
	s.mu.Unlock()
	if reconnected {
		s.disconnected()
	}
	if s == s.session.subscribers[0] { // which receives the heartbeats
		s.session.restartTimeouts()
	}
	s.mu.Lock()
	s.pubsub = pubsub
	for channel, state := range s.topics {
		state.requested, state.pending, state.confirmed = false, 0, false
		s.changed = append(s.changed, channel)
	}
	s.mu.Unlock()
	s.changes.Add(s.applyChanges)
}

// disconnected reports a possible loss on every topic.
func (s *subscriber) disconnected() {
	s.mu.Lock()
	s.pubsub = nil
	var interrupted []string
	for _, state := range s.topics {
		if state.wanted && state.requested {
			interrupted = append(interrupted, state.topic)
		}
	}
	s.mu.Unlock()
	for _, topic := range interrupted {
		s.session.handler.MessagesLost(topic, 0)
	}
}

// subscribeConfirmed handles the response to a SUBSCRIBE command.
func (s *subscriber) subscribeConfirmed(channel string) {
	s.mu.Lock()
	state := s.topics[channel]
	confirmed := false
	if state != nil && state.pending > 0 {
		state.pending--
		confirmed = state.pending == 0 && state.wanted
		state.confirmed = confirmed
		s.removeUnwanted(channel, state)
	}
	s.mu.Unlock()
	if confirmed {
		s.session.handler.Subscribed(state.topic)
	}
}

// unsubscribeExpected reports whether this node has ended the subscription. On a Cluster, the
// server ends subscriptions whose slot moves.
func (s *subscriber) unsubscribeExpected(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.topics[channel]
	return state == nil || !state.requested || state.pending > 0
}

// receive handles a published message. Anything else on the channel is ignored.
func (s *subscriber) receive(channel string, payload []byte) {
	m, ok := decodeMessage(payload)
	if !ok {
		return
	}
	if hadFailed := s.session.markAlive(m.from); hadFailed {
		for _, sub := range s.session.subscribers {
			sub.reconfirm()
		}
	}
	switch {
	case m.kind == kindLeave:
		s.session.peerLeft(m.from)
	case m.from == s.session.name, m.kind == kindHeartbeat:
	default:
		s.deliver(channel, &m)
	}
}

// reconfirm calls Subscribed again for every confirmed topic. The router then queries presence,
// which it has removed for the peer that returned.
func (s *subscriber) reconfirm() {
	s.mu.Lock()
	var topics []string
	for _, state := range s.topics {
		if state.confirmed {
			topics = append(topics, state.topic)
		}
	}
	s.mu.Unlock()
	for _, topic := range topics {
		s.session.handler.Subscribed(topic)
	}
}

func (s *subscriber) forgetPeer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.topics {
		delete(state.trackers, name)
	}
}

// deliver passes a packet to the handler, after the losses that it reveals.
func (s *subscriber) deliver(channel string, m *nodeMessage) {
	s.mu.Lock()
	state := s.topics[channel]
	if state == nil || !state.wanted {
		s.mu.Unlock()
		return
	}
	tracker := state.trackers[m.from]
	if tracker == nil {
		tracker = &sequenceTracker{epoch: m.epoch, next: m.number, first: m.number}
		state.trackers[m.from] = tracker
	}
	missing, isNew := tracker.track(m)
	lossBefore := isNew && tracker.lossBefore(m)
	s.mu.Unlock()
	if missing > 0 {
		s.session.handler.MessagesLost(state.topic, missing)
	}
	if lossBefore { // some of these may precede the subscription, so that their number is unknown
		s.session.handler.MessagesLost(state.topic, 0)
	}
	if isNew && m.kind == kindPacket {
		s.session.handler.Receive(state.topic, m.from, m.packet)
	}
}
