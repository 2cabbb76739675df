package pubsub

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
)

// A receiver receives the channels of some partitions on one connection.
type receiver struct {
	link    *Link
	client  goredis.UniversalClient // on a Cluster, of one master
	probe   cluster.Channel         // subscribed to on every connection
	ctx     context.Context         //nolint:containedctx // of run
	cancel  context.CancelFunc
	changes executor.FuncQueue

	received atomic.Int64 // when the last message arrived, in Unix nanoseconds

	// Guarded by link.mu.
	pubsub  *goredis.PubSub // nil while there is no connection
	changed []string        // channels for applyChanges
}

const (
	// pingAfter is how long a connection may be silent. After as much again it is replaced. That
	// is longer than a server pauses in general, since a replaced connection loses messages.
	pingAfter   = 2500 * time.Millisecond
	maxPause    = 500 * time.Millisecond // before the next connection
	maxChannels = 500                    // in one command
)

// newReceiver starts a receiver, whose probe is in the given partition. l.mu must be held, or l not
// be shared yet.
func (l *Link) newReceiver(client goredis.UniversalClient, partition int) *receiver {
	l.created++
	r := &receiver{link: l, client: client, probe: l.engine.channelIn(partition, "probe", l.node+"-"+strconv.Itoa(l.created))}
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	l.receivers[r] = struct{}{}
	go r.run()
	return r
}

// run keeps a connection until r.ctx ends.
func (r *receiver) run() {
	pause := maxPause / 16
	for r.ctx.Err() == nil {
		began := time.Now()
		r.listen()
		r.disconnected()
		if time.Since(began) > maxPause {
			pause = maxPause / 16
		}
		r.link.ReloadTopology()
		select {
		case <-r.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, maxPause)
	}
}

// listen opens a connection and receives until it fails or r.ctx ends.
func (r *receiver) listen() {
	pubsub := r.subscribeProbe()
	defer func() { _ = pubsub.Close() }()
	stop := context.AfterFunc(r.ctx, func() { _ = pubsub.Close() })
	defer stop()
	silent := false
	for {
		message, err := pubsub.ReceiveTimeout(r.ctx, pingAfter)
		timeout, isNet := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			silent = false
			if !r.handle(pubsub, message) {
				return
			}
		case isNet && timeout.Timeout() && !silent && pubsub.Ping(r.ctx) == nil:
			silent = true
		default:
			return
		}
	}
}

func (r *receiver) subscribeProbe() *goredis.PubSub {
	if r.link.engine.Cluster != nil {
		return r.client.SSubscribe(r.ctx, r.probe.Name)
	}
	return r.client.Subscribe(r.ctx, r.probe.Name)
}

// handle returns false if the connection must be replaced.
func (r *receiver) handle(pubsub *goredis.PubSub, message any) bool {
	switch m := message.(type) {
	case *goredis.Message:
		r.received.Store(time.Now().UnixNano())
		r.link.events.Received(m.Channel, []byte(m.Payload))
	case *goredis.Subscription:
		switch {
		case m.Channel == r.probe.Name:
			if m.Kind == "sunsubscribe" {
				return false // its slot has moved
			}
			r.connected(pubsub)
		case m.Kind == "subscribe" || m.Kind == "ssubscribe":
			r.subscribeConfirmed(m.Channel)
		default:
			r.unsubscribed(m.Channel)
		}
	}
	return true
}

// connected subscribes to all channels on a new connection.
func (r *receiver) connected(pubsub *goredis.PubSub) {
	l := r.link
	l.mu.Lock()
	reconnected := r.pubsub == pubsub // by go-redis, which does not report it
	l.mu.Unlock()
	if reconnected {
		r.disconnected()
	}
	r.received.Store(time.Now().UnixNano())
	l.mu.Lock()
	r.pubsub = pubsub
	for name, state := range l.channels {
		if l.partitions[state.Partition] == r {
			state.reset()
			r.changed = append(r.changed, name)
		}
	}
	l.mu.Unlock()
	r.changes.Add(r.applyChanges)
}

// disconnected reports the interruption of all subscriptions.
func (r *receiver) disconnected() {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	r.pubsub = nil
	l.mu.Unlock()
	l.interrupt(func(c *channelState) bool { return l.partitions[c.Partition] == r })
}

// applyChanges sends the commands for the changed channels. It runs in r.changes alone.
func (r *receiver) applyChanges() {
	l := r.link
	l.reporting.Lock()
	l.mu.Lock()
	pubsub := r.pubsub
	var subscribe, unsubscribe []cluster.Channel
	var unchanged []string
	for _, name := range r.changed {
		state := l.channels[name]
		switch {
		case state == nil || l.partitions[state.Partition] != r:
		case pubsub == nil: // the next connection subscribes to everything
			l.removeUnwanted(state)
		case state.wanted && !state.requested:
			state.requested = true
			state.pending++
			subscribe = append(subscribe, state.Channel)
		case state.wanted && state.pending == 0 && !state.confirmed: // unsubscribed and subscribed, with no command between
			state.confirmed = true
			unchanged = append(unchanged, name)
		case !state.wanted && state.requested:
			state.requested = false
			unsubscribe = append(unsubscribe, state.Channel)
			l.removeUnwanted(state)
		}
	}
	r.changed = nil
	l.mu.Unlock()
	for _, name := range unchanged {
		l.events.Confirmed(name)
	}
	l.reporting.Unlock()
	if pubsub != nil {
		r.send(pubsub, subscribe, unsubscribe)
	}
}

// send ignores errors: the goroutine that receives detects a broken connection.
func (r *receiver) send(pubsub *goredis.PubSub, subscribe, unsubscribe []cluster.Channel) {
	sendSubscribe, sendUnsubscribe := pubsub.Subscribe, pubsub.Unsubscribe
	if r.link.engine.Cluster != nil {
		sendSubscribe, sendUnsubscribe = pubsub.SSubscribe, pubsub.SUnsubscribe
	}
	for _, names := range r.commands(unsubscribe) {
		_ = sendUnsubscribe(context.Background(), names...)
	}
	for _, names := range r.commands(subscribe) {
		_ = sendSubscribe(context.Background(), names...)
	}
}

// commands returns the channels of each command. On a Cluster, those of one command must have the
// same slot.
func (r *receiver) commands(channels []cluster.Channel) (commands [][]string) {
	slices.SortStableFunc(channels, func(a, b cluster.Channel) int { return a.Partition - b.Partition })
	sharded := r.link.engine.Cluster != nil
	for i, c := range channels {
		last := len(commands) - 1
		if i == 0 || sharded && channels[i-1].Partition != c.Partition || len(commands[last]) == maxChannels {
			commands = append(commands, nil)
			last++
		}
		commands[last] = append(commands[last], c.Name)
	}
	return commands
}

// subscribeConfirmed handles the response to a SUBSCRIBE command.
func (r *receiver) subscribeConfirmed(channel string) {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	state := l.channels[channel]
	confirmed := false
	if state != nil && l.partitions[state.Partition] == r && state.pending > 0 {
		state.pending--
		confirmed = state.pending == 0 && state.wanted
		state.confirmed = confirmed
		l.removeUnwanted(state)
	}
	l.mu.Unlock()
	if confirmed {
		l.events.Confirmed(channel)
	}
}

// unsubscribed handles the response to an UNSUBSCRIBE command, or the end of a subscription whose
// slot moves, which the server sends without a command. The topology then shows the new master.
func (r *receiver) unsubscribed(channel string) {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	state := l.channels[channel]
	expected := state == nil || l.partitions[state.Partition] != r || !state.requested || state.pending > 0
	l.mu.Unlock()
	if !expected {
		l.moved(state.Partition)
	}
}
