//go:build !js

package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// A userServer keeps messages for each user. All its clients are the user ann, and it sends a message
// whenever one has connected, before it greets or resumes its session.
type userServer struct {
	*testServer

	mu   sync.Mutex
	sent int
}

func startUserServer(t *testing.T, messages int) *userServer {
	t.Helper()
	s := &userServer{}
	s.testServer = startServer(t, &router.Options{
		Resume:       router.ResumeOptions{Within: time.Minute},
		UserHistory:  router.History{Messages: messages},
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		OnOpen:       func(context.Context, *router.Conn) error { return s.send() },
	})
	s.start()
	return s
}

// send sends the next number to the user.
func (s *userServer) send() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	_, err := s.SendToUser("", "ann", said{fmt.Sprint(s.sent)})
	return err
}

// last returns the number that was sent last. The race detector does not see that what OnOpen sends happens
// before the client is connected, so the lock is needed.
func (s *userServer) last() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func TestUserHistory_LossIsReported(t *testing.T) {
	t.Parallel()
	s := startUserServer(t, 5)
	c, ctx := s.connect(&client.Options{Resume: true}), testContext(t)
	received, losses := make(chan string, 100), make(chan client.Loss, 10)
	client.On(c, func(m said, _ *client.Received) { received <- m.Text })
	_, err := c.Subscribe(ctx, "", &client.SubscribeOptions{OnLoss: func(l client.Loss) { losses <- l }})
	require.NoError(t, err)
	s.cut()
	for range 20 { // more than the history holds
		require.NoError(t, s.send())
	}
	select {
	case l := <-losses:
		assert.NotEmpty(t, l.Position.Epoch)
	case <-ctx.Done():
		t.Fatal("no loss was reported")
	}
	require.NoError(t, reconnected(ctx, c))
	require.NoError(t, s.send())
	for text := ""; text != fmt.Sprint(s.last()); text = <-received {
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
