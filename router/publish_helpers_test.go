package router_test

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

// publishStored publishes a message, waits until it is stored, and returns its position.
func publishStored(ctx context.Context, r *router.Router, topic string, m router.Message, opts ...router.PublishOption) (at broker.Position, err error) {
	err = r.Publish(topic, m, append(opts, router.Stored(ctx, &at))...)
	return at, err
}

// subscribeSince subscribes the connection of a message from a position on.
func subscribeSince(ctx *router.Context, topic string, position broker.Position) (recovery router.Recovery, err error) {
	err = ctx.Subscribe(topic, router.Since(position, &recovery))
	return recovery, err
}

// subscribeState subscribes the connection of a message to the current state of a topic.
func subscribeState(ctx *router.Context, topic string) (recovery router.Recovery, err error) {
	err = ctx.Subscribe(topic, router.CurrentState(&recovery))
	return recovery, err
}
