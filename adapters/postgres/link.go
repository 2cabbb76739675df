package postgres

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/rules"
)

// A link is the connection of a node. One goroutine, run, listens; mark runs while subscriptions
// are to be confirmed. Locks are acquired in the order of the fields; mu is not held while a
// function of events is called.
type link struct {
	store  *store
	node   string
	engine *engine
	events cluster.Events

	ctx    context.Context //nolint:containedctx // of run
	cancel context.CancelFunc

	dispatch sync.Mutex // held while functions of events are called

	mu         sync.Mutex
	subscribed map[string]*subscription // by name of the channel
	current    *listener                // nil while there is none
	listeners  int
	marks      marks
}

// A listener is a connection that listens.
type listener struct {
	conn      *pgx.Conn
	probe     cluster.Channel
	cancel    context.CancelFunc
	arrived   atomic.Int64 // when the last notification arrived, in nanoseconds since 1970
	hasWorked atomic.Bool  // a notification has arrived
	suspected atomic.Bool
}

const (
	maxPause = 500 * time.Millisecond // before the next attempt to connect

	// replaceAfter is how long a suspected connection may deliver nothing.
	replaceAfter = 500 * time.Millisecond

	closeTimeout = time.Second
)

// SetSubscribed changes whether the node subscribes to a channel. What arrives before the
// confirmation is not passed on.
func (l *link) SetSubscribed(channel cluster.Channel, subscribed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !subscribed {
		delete(l.subscribed, channel.Name)
		return
	}
	sub := l.subscribed[channel.Name]
	if sub == nil {
		sub = &subscription{channel: channel.Name}
		l.subscribed[channel.Name] = sub
	}
	if l.current != nil {
		l.requestLocked(sub)
	}
}

// Probes returns the probe of the connection, if there is one.
func (l *link) Probes() []cluster.Probe {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil
	}
	return []cluster.Probe{{Channel: l.current.probe, Idle: time.Since(time.Unix(0, l.current.arrived.Load()))}}
}

// Suspect replaces the connection unless something arrives soon: what was delayed may still do.
func (l *link) Suspect(probe cluster.Channel) {
	c := l.find(probe)
	if c == nil || c.suspected.Swap(true) {
		return
	}
	before := c.arrived.Load()
	time.AfterFunc(replaceAfter, func() {
		c.suspected.Store(false)
		if c.arrived.Load() != before {
			return
		}
		if !c.hasWorked.Load() {
			slog.Default().WarnContext(l.ctx, "postgres: a connection that listens receives nothing; through PgBouncer in transaction mode, set Options.Listen",
				"server", net.JoinHostPort(l.store.listen.Host, strconv.Itoa(int(l.store.listen.Port))))
		}
		c.cancel()
	})
}

// Reconnect replaces the connection.
func (l *link) Reconnect(probe cluster.Channel) {
	if c := l.find(probe); c != nil {
		c.cancel()
	}
}

func (l *link) find(probe cluster.Channel) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.current.probe.Name != probe.Name {
		return nil
	}
	return l.current
}

// Close ends the connections. It does not wait for a server that does not respond.
func (l *link) Close() {
	l.cancel()
	go l.store.pool.Close() // waits for connections that are in use
}

// run listens until the link is closed.
func (l *link) run() {
	pause := rules.Backoff{Max: maxPause}
	for l.ctx.Err() == nil {
		if c, err := l.open(); err == nil {
			pause.Reset()
			l.use(c)
		}
		_ = pause.Wait(l.ctx)
	}
}

// open returns a connection that listens. A replica does not notify.
func (l *link) open() (*listener, error) {
	ctx, cancel := context.WithTimeout(l.ctx, connectTimeout)
	defer cancel()
	config := l.store.listen.Copy()
	if l.store.beforeDial != nil {
		if err := l.store.beforeDial(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	c := &listener{conn: conn}
	l.mu.Lock()
	l.listeners++
	c.probe.Name = probePrefix + l.node + ":" + strconv.Itoa(l.listeners)
	l.mu.Unlock()
	statements := []string{"SELECT pg_is_in_recovery()"}
	for _, suffix := range []string{allSuffix, historySuffix, l.node} {
		statements = append(statements, "LISTEN "+schema.Quote(l.store.pgChannel(suffix)))
	}
	results, err := conn.PgConn().Exec(ctx, strings.Join(statements, "; ")).ReadAll()
	if err == nil && (len(results) == 0 || len(results[0].Rows) != 1 || string(results[0].Rows[0][0]) != "f") {
		err = errReplica
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

var errReplica = errors.Errorf(errors.Unavailable, "the server is a replica; nodes must listen to the primary")

func (c *listener) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.conn.Close(ctx)
}

// use receives on a connection until that fails or is replaced.
func (l *link) use(c *listener) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	defer c.close()
	c.cancel = cancel
	c.arrived.Store(time.Now().UnixNano())
	l.connected(c)
	defer l.disconnected()
	for {
		n, err := c.conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		c.arrived.Store(time.Now().UnixNano())
		c.hasWorked.Store(true)
		if err := l.handle(ctx, n.Payload); err != nil {
			return
		}
	}
}

// connected requests the confirmation of all subscriptions.
func (l *link) connected(c *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	for _, sub := range l.subscribed {
		l.requestLocked(sub)
	}
}

// disconnected reports the subscriptions that are not in effect any more.
func (l *link) disconnected() {
	l.dispatch.Lock()
	defer l.dispatch.Unlock()
	l.mu.Lock()
	l.current = nil
	l.marks.requested, l.marks.sent = nil, nil
	var channels []string
	for channel, sub := range l.subscribed {
		if sub.isConfirmed && channel[:1] != historyPrefix {
			channels = append(channels, channel)
		}
		sub.isConfirmed = false
	}
	l.mu.Unlock()
	if len(channels) > 0 && l.ctx.Err() == nil {
		l.events.Interrupted(channels)
	}
}

// handle passes on the records of a notification. An error means that they are lost.
func (l *link) handle(ctx context.Context, text string) error {
	records, row, ok := parseNotification(text)
	if !ok {
		return nil // of another program
	}
	if row > 0 {
		var err error
		if records, err = l.store.packetOf(ctx, row); err != nil {
			return err
		}
	}
	l.dispatch.Lock()
	defer l.dispatch.Unlock()
	for len(records) > 0 && ok {
		var r record
		if r, records, ok = cutRecord(records); ok && r.channel != "" {
			l.receive(r)
		}
	}
	return nil
}

// receive passes on a record.
func (l *link) receive(r record) {
	prefix := r.channel[:1]
	switch prefix {
	case wakePrefix:
		if s := l.engine.wakes.Load(); s != nil {
			s.wakeOwner(r.payload)
		}
		return
	case probePrefix:
		l.events.Received(r.channel, r.payload)
		return
	case markPrefix:
		l.marked(r.payload)
		return
	}
	l.mu.Lock()
	sub := l.subscribed[r.channel]
	isConfirmed := sub != nil && sub.isConfirmed
	l.mu.Unlock()
	switch {
	case !isConfirmed:
	case prefix == historyPrefix:
		l.engine.received(r.channel[1:], r.payload)
	default:
		l.events.Received(r.channel, r.payload)
	}
}
