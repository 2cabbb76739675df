package main

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/router"
)

// Add asks to add one.
type Add struct{}

func (Add) MessageType() string { return "ADD" }

// Count is what the pages show.
type Count struct {
	Value int64  `json:"value"`
	Node  string `json:"node"` // which has counted
}

func (Count) MessageType() string { return "COUNT" }

const (
	topic = "count"
	key   = "count"
)

// A counter has its value in Redis.
type counter struct {
	redis goredis.UniversalClient
	node  string // the name of the container
}

func (c counter) open(ctx context.Context, conn *router.Conn) error {
	if err := conn.Subscribe(topic); err != nil {
		return err
	}
	value, err := c.redis.Get(ctx, key).Int64()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	return conn.Send(Count{Value: value, Node: c.node})
}

func (c counter) add(ctx *router.Context, _ Add) error {
	value, err := c.redis.Incr(ctx, key).Result()
	if err != nil {
		return err
	}
	return ctx.Publish(topic, Count{Value: value, Node: c.node})
}
