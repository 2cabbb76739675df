package postgres

import (
	"context"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/cluster"
)

// An engine carries messages between nodes, and the publications of histories, as notifications. A
// link listens to three channels of PostgreSQL: what all nodes receive, what all nodes with
// histories receive, and what this node alone receives. A backend compares each notification with
// all channels of its session, so there is none per topic.
type engine struct {
	store *store

	received    func(topic string, payload []byte) // a publication of a history
	reconnected func(topic string)                 // what follows is received from now on

	link  *link
	wakes atomic.Pointer[sequencer] // which wake-ups are for
}

// The first byte of the name of a channel says what it is.
const (
	topicPrefix   = "t"
	nodesPrefix   = "n"
	nodePrefix    = "d" // messages to a node
	probePrefix   = "p"
	historyPrefix = "h"
	markPrefix    = "m" // of a link to itself
	wakePrefix    = "w" // publications in the outbox; the payload has their shards
)

// Channel returns where a name is carried.
func (e *engine) Channel(kind cluster.Kind, name string) cluster.Channel {
	prefix := topicPrefix
	switch kind {
	case cluster.NodesChannel:
		prefix = nodesPrefix
	case cluster.NodeChannel:
		prefix = nodePrefix
	}
	return cluster.Channel{Name: prefix + name}
}

// Suffixes of the names of channels of PostgreSQL, besides the names of nodes.
const (
	allSuffix     = "all"
	historySuffix = "history"
)

// pgChannel returns the name of a channel of PostgreSQL, which is limited to 63 bytes.
func (s *store) pgChannel(suffix string) string {
	const most = 30
	if len(s.schema) <= most {
		return s.schema + ":" + suffix
	}
	return hex.EncodeToString(hashOf(s.schema)[:most/2]) + ":" + suffix
}

// pgChannelOf returns the channel of PostgreSQL on which a channel is published.
func (l *link) pgChannelOf(channel string) string {
	switch channel[:1] {
	case nodePrefix:
		return l.store.pgChannel(channel[1:])
	case probePrefix, markPrefix:
		return l.store.pgChannel(l.node)
	}
	return l.store.pgChannel(allSuffix)
}

// Connect adds a node.
func (e *engine) Connect(node string, events cluster.Events) cluster.Link {
	l := &link{store: e.store, node: node, engine: e, events: events, subscribed: map[string]*subscription{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	e.link = l
	go l.run()
	return l
}

// Path returns the path of everything.
func (l *link) Path(int) string { return "postgres" }

// Publish publishes messages in one transaction, without a flush to the disk.
func (l *link) Publish(ctx context.Context, batch []*cluster.Message) {
	var p packer
	for _, m := range batch {
		p.add(l.pgChannelOf(m.Channel.Name), record{m.Channel.Name, m.Payload})
	}
	p.flush()
	b := &pgx.Batch{}
	l.store.queueNotifications(b, p.notifications)
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := l.store.pool.SendBatch(ctx, b).Close(); err != nil {
		for _, m := range batch {
			m.Err = err
		}
	}
}

const publishTimeout = 3 * time.Second

// queueNotifications queues statements that notify.
func (s *store) queueNotifications(b *pgx.Batch, notifications []notification) {
	var channels, texts []string
	flush := func() {
		if len(texts) > 0 {
			b.Queue("SELECT pg_notify(u.c, u.t) FROM unnest($1::text[], $2::text[]) AS u (c, t)", channels, texts)
			channels, texts = nil, nil
		}
	}
	for _, n := range notifications {
		if n.body == nil {
			channels, texts = append(channels, n.channel), append(texts, n.text)
			continue
		}
		flush()
		b.Queue(s.sql("WITH p AS (INSERT INTO penstock.packet (body) VALUES ($2) RETURNING id) SELECT pg_notify($1, $3 || p.id::text) FROM p"),
			n.channel, n.body, rowPrefix)
	}
	flush()
}

// packetOf returns the body of a row of the table packet.
func (s *store) packetOf(ctx context.Context, id int64) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, s.sql("SELECT body FROM penstock.packet WHERE id = $1"), id).Scan(&body)
	return body, err
}
