package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/router/observe"
)

// This file publishes messages, and receives those of other nodes.

// publish queues a message for every subscriber, and passes it to the broker unless it is local.
func (r *Router) publish(ctx context.Context, name string, m Message, opts PublishOption) error {
	if r.spans.IsOn() {
		return r.publishTraced(ctx, name, m, opts)
	}
	_, err := r.publishNow(ctx, name, m, opts)
	return err
}

// publishNow is publish without a span. It returns how many connections of this node receive the message,
// or 0 on a topic with a History.
func (r *Router) publishNow(ctx context.Context, name string, m Message, opts PublishOption) (receivers int, err error) {
	if err := topicname.Check(name); err != nil {
		return 0, err
	}
	switch retains := r.topics.Retains(name); {
	case opts.local && opts.needsHistory():
		return 0, errors.Errorf(errors.InvalidArgument, "a Local publication is not stored; Stored, IdempotencyKey and Removed cannot be combined with it")
	case retains && !opts.local:
		return 0, r.publishStored(ctx, name, m, opts)
	case opts.needsHistory():
		return 0, r.topics.CheckHistory(name)
	}
	p, err := r.encodeAll(m, r.formatsToPublishOn(name, !opts.local))
	if p.IsEmpty() {
		return 0, err
	}
	defer p.Free()
	receivers = r.topics.Deliver(name, &p, opts.except.asSubscriber())
	r.hooks.Observe(observe.Event{Kind: observe.Published, Count: receivers})
	if !opts.local && r.opts.Broker != nil {
		return receivers, failure.Join(err, r.node.Publish(name, r.formats.Packet(&p, r.spans.Inject(ctx))))
	}
	return receivers, err
}

// publishOnHistory stores a message. It waits for as long as the context of Stored permits, and
// otherwise for at most Timeouts.Call.
func (r *Router) publishOnHistory(ctx context.Context, name string, m Message, opts PublishOption) error {
	if opts.stored {
		ctx = opts.ctx
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.Timeouts.Call)
		defer cancel()
	}
	at, err := r.store(ctx, name, m, &opts)
	if err == nil && opts.at != nil {
		*opts.at = at
	}
	return err
}

// asSubscriber returns the connection as its topics know it: nil if c is nil.
func (c *Conn) asSubscriber() *topic.Subscriber {
	if c == nil {
		return nil
	}
	return &c.member.Subscriber
}

// receivePacket handles a packet that another node has published on a topic. The broker calls it.
func (r *Router) receivePacket(name, from string, packet []byte) {
	switch {
	case len(packet) == 0:
	case name == usersTopic && packet[0] == ask.UserAsk:
		r.asks.ReceiveUserAsk(from, packet)
	case name == usersTopic, name == r.nodeTopic && packet[0] < ask.UserAsk:
		r.receiveUserPacket(packet)
	case name == r.nodeTopic:
		r.asks.Receive(from, packet)
	default:
		r.receiveMessage(name, packet)
	}
}

// messagesLost is called when packets of a topic were lost. 0 is an unknown number.
func (r *Router) messagesLost(name string, packets int) {
	switch {
	case name == usersTopic && r.members.UserLogs:
		return // what must not be lost is stored
	case name == usersTopic, topicname.IsUserLog(name):
		name = ""
	case name == r.nodeTopic:
		return // it carries no messages; an ask or an answer that is lost ends with its time
	}
	r.hooks.Observe(observe.Event{Kind: observe.MessagesLost, Count: packets})
	if r.opts.OnMessagesLost == nil {
		return
	}
	r.hooks.Later.Add(func() {
		r.hooks.Call(context.Background(), "OnMessagesLost", func() { r.opts.OnMessagesLost(name, packets) })
	})
}

// topicConfig returns what topics need of the router.
func (r *Router) topicConfig() topic.Config {
	limits := &r.opts.Limits
	config := topic.Config{
		Formats:        &r.formats,
		MaxTopics:      limits.Topics,
		QueueMessages:  limits.QueueMessages,
		QueueBytes:     limits.QueueBytes,
		ReadTimeout:    r.opts.Timeouts.Call,
		Away:           r.away,
		ByID:           func(connID string) *topic.Subscriber { return r.conns.ByID(connID).asSubscriber() },
		TopicsExceeded: topicsExceeded,
		QueueExceeded:  r.queueExceeded,
		Delivered: func(receivers int, took time.Duration) {
			r.hooks.Observe(observe.Event{Kind: observe.Delivered, Count: receivers, Duration: took})
		},
		Lost: r.messagesLost,
	}
	if r.opts.OnPresence != nil {
		config.PresenceWaits = func() { r.hooks.Later.Add(r.reportPresence) }
	}
	return config
}
