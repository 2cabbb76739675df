//go:build !js

package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// TestUserHistory_LossIsReported sends a message whenever a client of the user has connected, before it greets or resumes its
// session.
func TestUserHistory_LossIsReported(t *testing.T) {
	t.Parallel()
	var s *testServer
	var sent atomic.Int64
	send := func() error {
		_, err := s.SendToUser("", "ann", said{fmt.Sprint(sent.Add(1))})
		return err
	}
	s = startServer(t, &router.Options{
		Resume:       router.ResumeOptions{Within: time.Minute},
		UserHistory:  router.History{Messages: 5},
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		OnOpen:       func(context.Context, *router.Conn) error { return send() },
	})
	s.start()
	c, ctx := s.connect(&client.Options{Resume: true}), testContext(t)
	received, losses := make(chan string, 100), make(chan client.Loss, 10)
	client.On(c, func(m said, _ *client.Received) { received <- m.Text })
	_, err := c.Subscribe(ctx, "", &client.SubscribeOptions{OnLoss: func(l client.Loss) { losses <- l }})
	require.NoError(t, err)
	s.cut()
	for range 20 { // more than the history holds
		require.NoError(t, send())
	}
	select {
	case l := <-losses:
		assert.NotEmpty(t, l.Position.Epoch)
	case <-ctx.Done():
		t.Fatal("no loss was reported")
	}
	require.NoError(t, reconnected(ctx, c))
	require.NoError(t, send())
	for text := ""; text != fmt.Sprint(sent.Load()); text = <-received {
		require.NoError(t, ctx.Err())
	}
}

func TestUserHistory_SubscribeWaitsForTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, &router.Options{Resume: router.ResumeOptions{Within: time.Minute}})
	s.start()
	c := s.connect(&client.Options{Resume: true})
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	_, err := c.Subscribe(ctx, "", nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}
