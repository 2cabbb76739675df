//go:build !js

package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestOn_SlowHandlersMissNoPublication(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	router.Topic(s.Router, "room/{id}", &router.TopicOptions{
		History: router.History{Messages: 10_000}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	s.start()
	connections := make(chan client.State, 1000)
	c, ctx := s.connect(&client.Options{MaxQueuedBytes: 2000, OnState: func(s client.State, _ error) {
		if s == client.Open {
			connections <- s
		}
	}}), testContext(t)
	release, received := make(chan struct{}), make(chan string, 2000)
	client.On(c, func(m said, _ *client.Received) {
		<-release
		received <- m.Text
	})
	_, err := c.Subscribe(ctx, "room/go", &client.SubscribeOptions{OnLoss: func(l client.Loss) { received <- fmt.Sprint(l) }})
	require.NoError(t, err)
	for i := range 500 {
		err := s.Publish("room/go", said{fmt.Sprint(i)}, router.Stored(ctx, nil))
		require.NoError(t, err)
	}
	close(release)
	for i := range 500 {
		select {
		case text := <-received:
			require.Equal(t, fmt.Sprint(i), text)
		case <-ctx.Done():
			t.Fatal("missing", i)
		}
	}
	assert.Greater(t, len(connections), 1, "the connection was closed because the handlers were slow")
}

// secretive is a reply whose method is the application's.
type secretive struct{ c *client.Client }

func (secretive) MessageType() string { return "SECRETIVE" }

// MarshalJSON fails in its own way.
func (s secretive) MarshalJSON() ([]byte, error) {
	s.c.Connection() // needs the lock of the client
	panic("secret")
}

func TestHandle_ReplyThatPanicsIsInternal(t *testing.T) {
	s := startServer(t, nil)
	router.RPC(s.Router, func(ctx *router.Context, _ say) (said, error) {
		_, err := router.Call[said](ctx, ctx.Conn(), say{})
		return said{string(errors.CodeOf(err))}, nil
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	client.Handle(c, func(context.Context, say) (secretive, error) { return secretive{c}, nil })
	reply, err := client.Call[said](ctx, c, say{})
	require.NoError(t, err)
	assert.Equal(t, string(errors.Internal), reply.Text)
}
