package pubsub

import (
	"context"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
)

// A receiver receives the channels of some partitions on one connection.
//
// A connection that seems to be broken may only be delayed: what the server has sent still arrives
// if the network or this process continues. So a receiver opens another connection first,
// subscribes to everything there, and keeps what arrives. It discards that if the first connection
// delivers again, which then has lost nothing. Otherwise it continues with what it has kept.
type receiver struct {
	link    *Link
	client  goredis.UniversalClient // on a Cluster, of one master
	ctx     context.Context         //nolint:containedctx // of run
	cancel  context.CancelFunc
	changes executor.FuncQueue

	// Guarded by link.mu.
	current *connection // nil while there is none
	changed []string    // channels for applyChanges
}

const (
	pingAfter   = 2500 * time.Millisecond // of silence; after as much again, another connection is opened
	maxPause    = 500 * time.Millisecond  // before the next attempt to open a connection
	maxChannels = 500                     // in one command

	// replaceAfter is how long a connection may deliver nothing while another one works.
	replaceAfter    = 500 * time.Millisecond
	replaceWithin   = 10 * time.Second      // for one that delivers, but not the probe
	suspectedFor    = time.Second           // without a probe, at least
	suspectInterval = 20 * time.Millisecond // of looking whether a suspected connection delivers again
)

// newReceiverLocked starts a receiver. l.mu must be held.
func (l *Link) newReceiverLocked(client goredis.UniversalClient) *receiver {
	r := &receiver{link: l, client: client}
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	l.receivers[r] = struct{}{}
	go r.run()
	return r
}

// run keeps a connection until r.ctx ends.
func (r *receiver) run() {
	var c *connection
	pause := rules.Backoff{Max: maxPause}
	for r.ctx.Err() == nil {
		if c == nil {
			c = r.open()
		}
		began := time.Now()
		if c != nil {
			c = r.use(c)
		}
		if c != nil {
			continue
		}
		if time.Since(began) > maxPause {
			pause.Reset()
		}
		r.link.ReloadTopology()
		_ = pause.Wait(r.ctx)
	}
	if c != nil {
		c.close()
	}
}

// use receives on a connection until it has ended or is replaced. It returns the connection that
// replaces it, if there is one already.
func (r *receiver) use(c *connection) (next *connection) {
	c.promote()
	next = r.watch(c)
	c.close()
	<-c.ended
	r.disconnected()
	return next
}

// watch returns when the connection has ended or must be replaced.
func (r *receiver) watch(c *connection) (next *connection) {
	timer := time.NewTimer(pingAfter)
	defer timer.Stop()
	pinged := false
	for {
		sign := &c.arrived // changes when the connection works
		select {
		case <-r.ctx.Done():
			return nil
		case <-c.ended:
			return nil
		case <-c.suspected:
			if sign = &c.returned; since(sign) < suspectedFor { // the request was for an earlier probe
				continue
			}
		case <-timer.C:
			silence := since(&c.arrived)
			if silence < pingAfter {
				pinged = false
				timer.Reset(pingAfter - silence)
				continue
			}
			timer.Reset(pingAfter)
			if !pinged {
				pinged = true
				_ = c.pubsub.Ping(noReconnect)
				continue
			}
		}
		before := sign.Load()
		if next, replaced := r.replace(c, func() bool { return sign.Load() != before }); replaced {
			return next
		}
		pinged = false
	}
}

// replace opens another connection, and returns it when c has delivered nothing for replaceAfter
// while that one works. It reports false if c has recovered before.
func (r *receiver) replace(c *connection, recovered func() bool) (next *connection, replaced bool) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	opened := make(chan *connection)
	go r.openStandby(ctx, opened)
	ticker := time.NewTicker(suspectInterval)
	defer ticker.Stop()
	var works time.Time
	for {
		select {
		case <-r.ctx.Done():
			return next, true
		case <-c.ended:
			return next, true
		case next = <-opened:
			works = time.Now()
		case <-ticker.C:
		}
		switch waited := time.Since(works); {
		case next == nil && !recovered():
		case next == nil:
			return nil, false
		case recovered() || next.hasEnded():
			next.close()
			return nil, false
		case next.isFull() || waited >= replaceWithin || min(waited, since(&c.arrived)) >= replaceAfter:
			return next, true
		}
	}
}

// openStandby opens connections until the subscriptions of one are in effect, which it sends to
// opened. The receiver of that closes it.
func (r *receiver) openStandby(ctx context.Context, opened chan<- *connection) {
	for ctx.Err() == nil {
		c := r.openSubscribed()
		if c == nil {
			_ = rules.Sleep(ctx, maxPause)
			continue
		}
		select {
		case <-c.ready:
			select {
			case opened <- c:
				return
			case <-ctx.Done():
			}
		case <-c.ended:
			_ = rules.Sleep(ctx, maxPause)
		case <-ctx.Done():
		}
		c.close()
	}
}

// disconnected reports the interruption of all subscriptions.
func (r *receiver) disconnected() {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	r.current = nil
	l.mu.Unlock()
	l.interruptLocked(func(c *channelState) bool { return l.partitions[c.Partition] == r })
}

// applyChanges sends the commands for the changed channels, and for the probe if the connection
// needs another one. It runs in r.changes alone.
func (r *receiver) applyChanges() {
	l := r.link
	l.reporting.Lock()
	l.mu.Lock()
	c := r.current
	var subscribe, unsubscribe []cluster.Channel
	var unchanged []string
	for _, name := range r.changed {
		state := l.channels[name]
		switch {
		case state == nil || l.partitions[state.Partition] != r:
		case c == nil: // the next connection subscribes to everything
			l.removeUnwantedLocked(state)
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
			l.removeUnwantedLocked(state)
		}
	}
	r.changed = nil
	if c != nil && r.renewProbeLocked(c) {
		subscribe = append(subscribe, *c.probe.Load())
	}
	l.mu.Unlock()
	for _, name := range unchanged {
		l.events.Confirmed(name)
	}
	l.reporting.Unlock()
	if c != nil {
		c.send(subscribe, unsubscribe)
	}
}

// renewProbeLocked sets the probe of a connection that has none in a partition of its receiver, and
// reports whether it did. The partition is a random one: those that move to another master are
// often neighbors. l.mu must be held.
func (r *receiver) renewProbeLocked(c *connection) bool {
	l := r.link
	if probe := c.probe.Load(); probe != nil && l.partitions[probe.Partition] == r {
		return false
	}
	var own []int
	for partition, of := range l.partitions {
		if of == r {
			own = append(own, partition)
		}
	}
	if len(own) == 0 { // those of a receiver without partitions until the next topology
		c.probe.Store(nil)
		return false
	}
	l.probes++
	probe := l.engine.channelIn(own[random.N(len(own))], "probe", l.node+"-"+strconv.Itoa(l.probes))
	c.probe.Store(&probe)
	return true
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
		l.removeUnwantedLocked(state)
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
		l.movedLocked(state.Partition)
	}
}

// subscribeLater sends the SUBSCRIBE commands without a response again, because one of them was
// rejected while the cluster is down. It does not know which one.
func (r *receiver) subscribeLater() {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	for name, state := range l.channels {
		if l.partitions[state.Partition] == r && state.pending > 0 {
			r.changed = append(r.changed, name)
		}
	}
	if c := r.current; c != nil && c.probed.Load() != c.probe.Load() {
		c.probe.Store(nil)
	}
	l.mu.Unlock()
	l.interruptLocked(func(c *channelState) bool { return l.partitions[c.Partition] == r && c.pending > 0 })
	time.AfterFunc(maxPause, func() { r.changes.Add(r.applyChanges) })
}

// refused handles that the master does not have the slot of a partition, or not any more.
func (r *receiver) refused(partition int) {
	l := r.link
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	own := l.partitions[partition] == r
	l.mu.Unlock()
	if own {
		l.movedLocked(partition)
	}
}
