//go:build !js

package client_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestCall_LostConnectionMakesOutcomeUnknown(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	began := make(chan struct{}, 10)
	router.RPC(s.Router, func(ctx *router.Context, m add) (sum, error) {
		if m.A == 1 {
			return sum{m.B}, nil
		}
		began <- struct{}{}
		<-ctx.Done()
		return sum{}, ctx.Err()
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	go func() { <-began; s.cut() }()
	_, err := client.Call[sum](ctx, c, add{0, 0})
	assert.ErrorIs(t, err, client.ErrOutcomeUnknown)
	assert.Equal(t, errors.Aborted, errors.CodeOf(err))
	reply, err := client.Call[sum](ctx, c, add{1, 5}) // on the next connection
	require.NoError(t, err)
	assert.Equal(t, 5, reply.Sum)
}

func TestStream_ReturnsItemsInOrderAndEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	router.Stream(s.Router, func(_ *router.Context, m count) iter.Seq2[row, error] {
		return func(yield func(row, error) bool) {
			for n := range m.To {
				if n == 777 {
					yield(row{}, errors.Errorf(errors.NotFound, "no more"))
					return
				}
				if !yield(row{n}, nil) {
					return
				}
			}
		}
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	n := 0
	for item, err := range client.Stream[row](ctx, c, count{500}) {
		require.NoError(t, err)
		require.Equal(t, n, item.N)
		n++
	}
	assert.Equal(t, 500, n)
	n = 0
	var last error
	for item, err := range client.Stream[row](ctx, c, count{1000}) {
		if last = err; err == nil {
			require.Equal(t, n, item.N)
			n++
		}
	}
	assert.Equal(t, 777, n)
	assert.Equal(t, errors.NotFound, errors.CodeOf(last))
	for item, err := range client.Stream[row](ctx, c, count{1000}) {
		if err != nil || item.N == 100 {
			break
		}
	}
}

func TestClose_FailsEverythingThatWaits(t *testing.T) {
	t.Parallel()
	c := client.New("ws://127.0.0.1:1", nil)
	ctx := testContext(t)
	failed := make(chan error, 2)
	go func() { _, err := client.Call[sum](ctx, c, add{}); failed <- err }()
	go func() { failed <- client.Send(ctx, c, say{}) }()
	require.Eventually(t, func() bool { return c.State() == client.Waiting }, time.Minute, time.Millisecond)
	require.NoError(t, c.Close(ctx))
	require.ErrorIs(t, <-failed, client.ErrClosed)
	require.ErrorIs(t, <-failed, client.ErrClosed)
	assert.ErrorIs(t, c.Err(), client.ErrClosed)
	assert.ErrorIs(t, client.Send(ctx, c, say{}), client.ErrClosed)
	<-c.Done()
}

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
