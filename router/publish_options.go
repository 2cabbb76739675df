package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// A PublishOption changes one call of [Router.Publish] or [Context.Publish]: [Except], [Local],
// [Stored], [IdempotencyKey] and [Removed] return one. They can be combined.
type PublishOption struct {
	except  *Conn
	local   bool
	removed bool
	key     string

	stored bool
	ctx    context.Context  //nolint:containedctx // of one call
	at     *broker.Position // receives the position; may be nil
}

// Except does not send the message to a connection, such as that of the user who has caused it, on
// whatever node. Nil is no connection. When a client returns over another connection, it receives the message
// with what it has missed.
func Except(c *Conn) PublishOption { return PublishOption{except: c} }

// Local sends the message to the subscribers on this node only. Publish then does not wait and
// stores nothing, even on a topic with a History.
func Local() PublishOption { return PublishOption{local: true} }

// Stored waits until the message is stored, for as long as ctx and the broker permit, and sets
// position to where it is, unless position is nil. Publish returns FAILED_PRECONDITION if the topic has
// no History.
func Stored(ctx context.Context, position *broker.Position) PublishOption {
	return PublishOption{stored: true, ctx: ctx, at: position}
}

// IdempotencyKey makes a retry harmless: for broker.IdempotencyTime, a message with the key of an
// earlier one on the same topic is not stored again, and its position is that of the earlier one. A key
// that clients choose should contain their user ID. Publish returns FAILED_PRECONDITION if the topic
// has no History. "" is no key.
func IdempotencyKey(key string) PublishOption { return PublishOption{key: key} }

// Removed ends the current state of the key of the message, which must be [Conflatable]. The message is
// published like any other and should say that the key was removed, so it is usually of another type
// than the messages that set the state. Publish returns FAILED_PRECONDITION if the topic has no
// History.
func Removed() PublishOption { return PublishOption{removed: true} }

// publishOptions combines options.
func publishOptions(opts []PublishOption) (all PublishOption) {
	for _, o := range opts {
		all.local, all.removed = all.local || o.local, all.removed || o.removed
		if o.except != nil {
			all.except = o.except
		}
		if o.key != "" {
			all.key = o.key
		}
		if o.stored {
			all.stored, all.ctx, all.at = true, o.ctx, o.at
		}
	}
	return all
}

// needsHistory reports whether the options make sense only on a topic with a History.
func (o *PublishOption) needsHistory() bool { return o.stored || o.removed || o.key != "" }
