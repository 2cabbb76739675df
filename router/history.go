package router

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/tracing"
)

// History is what a topic retains of its publications; see TopicOptions.History. The zero History
// retains nothing. The numbers may be changed: positions continue.
type History struct {
	Messages   int               // the newest ones; at least 1
	Age        time.Duration     // older ones are not returned; a day if 0
	Bytes      int64             // of all retained messages of a topic; unlimited if 0
	Durability broker.Durability // where a message is before it counts as published; the memory of the store if zero
}

func (h History) enabled() bool { return h != History{} }

func (h History) retention() broker.Retention {
	return broker.Retention{Messages: h.Messages, Age: h.Age, Bytes: h.Bytes}
}

// validate returns what is wrong with the options of a topic.
func (h History) validate() error {
	switch {
	case !h.enabled():
		return nil
	case h.Messages < 1:
		return errors.Errorf(errors.InvalidArgument, "History.Messages is %d; it must be at least 1", h.Messages)
	case h.Age < 0:
		return errors.Errorf(errors.InvalidArgument, "History.Age is %v; it must not be negative", h.Age)
	case h.Bytes < 0:
		return errors.Errorf(errors.InvalidArgument, "History.Bytes is %d; it must not be negative", h.Bytes)
	}
	return h.Durability.Check()
}

// store stores a message, which all nodes then deliver, and delivers it on this node at
// once if it is the next one here.
func (r *Router) store(ctx context.Context, name string, m Message, opts *PublishOption) (broker.Position, error) {
	a, message, err := r.publication(name, m, opts)
	if err != nil {
		return broker.Position{}, err
	}
	at, err := r.topics.Store(ctx, a, message)
	if err == nil {
		r.hooks.Observe(observe.Event{Kind: observe.Published})
	}
	return at, err
}

// publication encodes a message, which the caller frees, and what the store keeps of it.
func (r *Router) publication(name string, m Message, opts *PublishOption) (a broker.Append, message envelope.Publication, err error) {
	key, err := envelope.StateKey(m, opts.removed)
	if err != nil {
		return a, message, err
	}
	if message, err = r.encodeAll(m, r.formats.All()); err != nil {
		message.Free()
		return a, envelope.Publication{}, err
	}
	packet := r.formats.Packet(&message, tracing.TraceContext{}) // readers must not join the trace
	if opts.except != nil {
		packet = topic.Except(opts.except.member.ID, packet)
	}
	p := r.topics.PatternOf(name)
	return broker.Append{
		Topic: name, Retention: p.Retention, Durability: r.topicOptions[p].durability, Packet: packet,
		IdempotencyKey: opts.key, StateKey: key, Removed: opts.removed,
	}, message, nil
}

// PrepareAppend returns what [Router.Publish] would store for a message to a topic with a History, for a store
// that publishes in a transaction of the application, such as package adapters/postgres. It publishes
// nothing. The options [Local] and [Stored] are errors.
func (r *Router) PrepareAppend(topic string, m Message, opts ...PublishOption) (broker.Append, error) {
	all := publishOptions(opts)
	if all.local || all.stored {
		return broker.Append{}, errors.Errorf(errors.InvalidArgument, "PrepareAppend publishes nothing, so Local and Stored cannot be combined with it")
	}
	if err := topicname.Check(topic); err != nil {
		return broker.Append{}, err
	}
	if err := r.topics.CheckHistory(topic); err != nil {
		return broker.Append{}, err
	}
	a, message, err := r.publication(topic, m, &all)
	message.Free()
	return a, err
}

// A StoredMessage is a message of a history.
type StoredMessage struct {
	Position broker.Position
	At       time.Time // when it was stored, by the clock of the store
	Type     string

	payload []byte // JSON; nil if there is none
}

// Decode decodes the message into the value that v points to, like a message of a client, but
// without validation.
func (m StoredMessage) Decode(v any) error {
	if m.payload == nil {
		return nil
	}
	return envelope.UnmarshalJSON(m.payload, v)
}

// ReadHistory returns stored messages of a topic with a History, in the order of their positions, and
// the current position of the topic. The Topic and Retention of the query are ignored. With Backward,
// it returns the newest messages.
//
// A stored message that cannot be read, which another program has written to the store, is logged and
// skipped: by ReadHistory, ReadState and Follow. Subscribers learn that it is lost.
func (r *Router) ReadHistory(ctx context.Context, topic string, q broker.Query) (messages []StoredMessage, current broker.Position, err error) {
	if err := topicname.Check(topic); err != nil {
		return nil, current, err
	}
	if err := r.topics.CheckHistory(topic); err != nil {
		return nil, current, err
	}
	q.Topic, q.Retention = topic, r.topics.PatternOf(topic).Retention
	page, err := r.histories.Read(ctx, q)
	if err != nil {
		return nil, current, err
	}
	return r.parseAllStored(ctx, topic, page.Publications), page.Position, nil
}

// Follow returns the messages of a topic with a History after a position, each once and in the order of positions, and
// waits for further ones. It is a subscription of the application, which needs no client. The zero position is before
// the oldest message; the position that ReadHistory returns begins with the next one. Follow reads the store whenever
// something is published, and again while the store cannot be reached. It does not delay publishers.
//
// It ends with the error of ctx, with UNAVAILABLE when Shutdown has closed the connections, with
// FAILED_PRECONDITION when messages after the position are lost or not retained any more, and with
// INVALID_ARGUMENT for a position that the topic has not reached.
func (r *Router) Follow(ctx context.Context, topic string, after broker.Position) iter.Seq2[StoredMessage, error] {
	return func(yield func(StoredMessage, error) bool) {
		err := topicname.Check(topic)
		if err == nil {
			err = r.topics.CheckHistory(topic)
		}
		if err != nil {
			yield(StoredMessage{}, err)
			return
		}
		next, stop := r.topics.Tail(topic, after)
		defer stop()
		for {
			page, err := next(ctx)
			if err != nil {
				yield(StoredMessage{}, err)
				return
			}
			for _, p := range page {
				if m, isReadable := r.parseStored(ctx, topic, p); isReadable && !yield(m, nil) {
					return
				}
			}
		}
	}
}

// parseAllStored returns the stored messages that can be read.
func (r *Router) parseAllStored(ctx context.Context, topic string, publications []broker.Publication) (messages []StoredMessage) {
	for _, p := range publications {
		if m, ok := r.parseStored(ctx, topic, p); ok {
			messages = append(messages, m)
		}
	}
	return messages
}

// parseStored returns a stored message. It logs one that cannot be read, and reports false.
func (r *Router) parseStored(ctx context.Context, topic string, p broker.Publication) (m StoredMessage, ok bool) {
	m, err := r.decodeStored(p)
	if err != nil {
		r.log.Unreadable(ctx, topic, fmt.Errorf("the message at %v cannot be read: %w", p.Position, err))
	}
	return m, err == nil
}

// decodeStored returns a stored message in JSON.
func (r *Router) decodeStored(p broker.Publication) (StoredMessage, error) {
	_, packet := topic.CutExcept(p.Packet)
	message, _, ok := r.formats.ParsePacket(packet, envelope.OnlyJSON, p.At)
	frame := message.Frame(envelope.JSON)
	if !ok || frame == nil {
		return StoredMessage{}, errors.New("it is no packet with JSON")
	}
	defer message.Free()
	envelope, err := wire.Parse(frame.Text())
	if err != nil {
		return StoredMessage{}, err
	}
	stored := StoredMessage{Position: p.Position, At: p.At, Type: string(envelope.Type)}
	if envelope.Payload != nil {
		stored.payload = append([]byte{}, envelope.Payload...)
	}
	return stored, nil
}
