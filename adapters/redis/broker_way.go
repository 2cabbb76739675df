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

// A way is one connection that listens to topics. On a Cluster there are several, each
// to the node that has its slot.
type way struct {
	link    *link
	client  goredis.UniversalClient
	prefix  string // of channels
	sharded bool
	changes executor.FuncQueue
	outbox  *outbox

	mu      sync.Mutex
	pubsub  *goredis.PubSub // nil while there is no connection
	topics  map[string]*topicState
	changed []string // that the connection has not been told of
}

// A topicState is what is known of a subscription.
type topicState struct {
	topic       string
	wanted      bool
	asked       bool // the connection was told to subscribe
	unconfirmed int  // times that it was, without an answer yet
	said        bool // the node knows that it is in effect
	followers   map[string]*follower
}

const (
	pingAfter   = time.Second // of silence; after as much again the connection is given up
	maxPause    = time.Second // before the next connection
	maxChannels = 500         // in one command
)

func (w *way) channel(topic string) string { return keyName(w.prefix+":topic", []string{topic}) }

// nodes is the channel on which nodes say that they are there. On a Cluster, every way
// listens to its own, because that chooses the slot; only the first one's is used.
func (w *way) nodes() string { return w.prefix + ":nodes" }

// want subscribes or unsubscribes, without waiting.
func (w *way) want(topic string, wanted bool) {
	w.mu.Lock()
	channel := w.channel(topic)
	state := w.topics[channel]
	if state == nil {
		state = &topicState{topic: topic, followers: map[string]*follower{}}
		w.topics[channel] = state
	}
	state.wanted, state.said = wanted, false
	if !wanted {
		clear(state.followers)
	}
	w.changed = append(w.changed, channel)
	w.mu.Unlock()
	w.changes.Add(w.tell)
}

// tell tells the connection what has changed.
func (w *way) tell() {
	w.mu.Lock()
	pubsub := w.pubsub
	var on, off, still []string
	for _, channel := range w.changed {
		state := w.topics[channel]
		switch {
		case state == nil:
		case pubsub == nil: // the next connection is told everything
			if !state.wanted {
				delete(w.topics, channel)
			}
		case state.wanted && !state.asked:
			state.asked = true
			state.unconfirmed++
			on = append(on, channel)
		case state.wanted && state.unconfirmed == 0 && !state.said: // it was never off
			state.said = true
			still = append(still, state.topic)
		case !state.wanted && state.asked:
			state.asked = false
			off = append(off, channel)
			w.forget(channel, state)
		}
	}
	w.changed = nil
	w.mu.Unlock()
	for _, topic := range still {
		w.link.node.Subscribed(topic)
	}
	if pubsub != nil {
		w.send(pubsub, on, off)
	}
}

// send ignores errors: a broken connection is noticed by who reads it.
func (w *way) send(pubsub *goredis.PubSub, on, off []string) {
	subscribe, unsubscribe := pubsub.Subscribe, pubsub.Unsubscribe
	if w.sharded {
		subscribe, unsubscribe = pubsub.SSubscribe, pubsub.SUnsubscribe
	}
	for part := range slices.Chunk(off, maxChannels) {
		_ = unsubscribe(context.Background(), part...)
	}
	for part := range slices.Chunk(on, maxChannels) {
		_ = subscribe(context.Background(), part...)
	}
}

// forget drops what is not wanted any more, once no answer is due.
func (w *way) forget(channel string, state *topicState) {
	if !state.wanted && state.unconfirmed == 0 {
		delete(w.topics, channel)
	}
}

// run keeps a connection until ctx ends.
func (w *way) run(ctx context.Context) {
	pause := maxPause / 16
	for ctx.Err() == nil {
		began := time.Now()
		w.listen(ctx)
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

// listen opens a connection, and returns when it is broken.
func (w *way) listen(ctx context.Context) {
	var pubsub *goredis.PubSub
	if w.sharded {
		pubsub = w.client.SSubscribe(ctx, w.nodes())
	} else {
		pubsub = w.client.Subscribe(ctx, w.nodes())
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
			if !w.take(pubsub, message) {
				w.lose()
				return
			}
		case isNet && timeout.Timeout() && !silent && pubsub.Ping(ctx) == nil:
			silent = true
		case ctx.Err() != nil:
			return
		default:
			w.lose()
			return
		}
	}
}

// take reports whether the connection is still good.
func (w *way) take(pubsub *goredis.PubSub, message any) bool {
	switch m := message.(type) {
	case *goredis.Message:
		w.receive(m.Channel, []byte(m.Payload))
	case *goredis.Subscription:
		switch {
		case m.Channel == w.nodes():
			if m.Kind == "sunsubscribe" {
				return false // its slot has moved
			}
			w.connected(pubsub)
		case m.Kind == "subscribe" || m.Kind == "ssubscribe":
			w.confirmed(m.Channel)
		default:
			return w.left(m.Channel)
		}
	}
	return true
}

// connected has the new connection told of all topics.
func (w *way) connected(pubsub *goredis.PubSub) {
	w.mu.Lock()
	again := w.pubsub == pubsub // the client has reconnected by itself
	w.mu.Unlock()
	if again {
		w.lose()
	}
	if w == w.link.ways[0] { // by which others say that they are there
		w.link.reachable()
	}
	w.mu.Lock()
	w.pubsub = pubsub
	for channel, state := range w.topics {
		state.asked, state.unconfirmed, state.said = false, 0, false
		w.changed = append(w.changed, channel)
	}
	w.mu.Unlock()
	w.changes.Add(w.tell)
}

// lose tells of every topic that something may have been missed.
func (w *way) lose() {
	w.mu.Lock()
	w.pubsub = nil
	var missed []string
	for _, state := range w.topics {
		if state.wanted && state.asked {
			missed = append(missed, state.topic)
		}
	}
	w.mu.Unlock()
	for _, topic := range missed {
		w.link.node.MessagesLost(topic, 0)
	}
}

func (w *way) confirmed(channel string) {
	w.mu.Lock()
	state := w.topics[channel]
	said := false
	if state != nil && state.unconfirmed > 0 {
		state.unconfirmed--
		said = state.unconfirmed == 0 && state.wanted
		state.said = said
		w.forget(channel, state)
	}
	w.mu.Unlock()
	if said {
		w.link.node.Subscribed(state.topic)
	}
}

// left reports whether this node has asked for it. On a Cluster, the server ends
// subscriptions when their slot moves.
func (w *way) left(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.topics[channel]
	return state == nil || !state.asked || state.unconfirmed > 0
}

func (w *way) receive(channel string, payload []byte) {
	e, ok := open(payload)
	if !ok {
		return
	}
	if wasDown := w.link.hear(e.from); wasDown {
		for _, other := range w.link.ways {
			other.sayAgain()
		}
	}
	switch {
	case e.kind == kindGoodbye:
		w.link.leaves(e.from)
	case e.from == w.link.name, e.kind == kindAlive:
	default:
		w.deliver(channel, &e)
	}
}

// sayAgain says of every subscription that it is in effect, so that the node asks who is there:
// what it knew of somebody who is heard again was taken back.
func (w *way) sayAgain() {
	w.mu.Lock()
	var topics []string
	for _, state := range w.topics {
		if state.said {
			topics = append(topics, state.topic)
		}
	}
	w.mu.Unlock()
	for _, topic := range topics {
		w.link.node.Subscribed(topic)
	}
}

func (w *way) unfollow(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, state := range w.topics {
		delete(state.followers, node)
	}
}

func (w *way) deliver(channel string, e *envelope) {
	w.mu.Lock()
	state := w.topics[channel]
	if state == nil || !state.wanted {
		w.mu.Unlock()
		return
	}
	f := state.followers[e.from]
	if f == nil {
		f = &follower{epoch: e.epoch, next: e.number, first: e.number}
		state.followers[e.from] = f
	}
	missing, isNew := f.follow(e)
	missedBefore := isNew && f.missedBefore(e)
	w.mu.Unlock()
	if missing > 0 {
		w.link.node.MessagesLost(state.topic, missing)
	}
	if missedBefore { // how many of them came after this node had subscribed, nobody knows
		w.link.node.MessagesLost(state.topic, 0)
	}
	if isNew && e.kind == kindPacket {
		w.link.node.Receive(state.topic, e.from, e.packet)
	}
}
