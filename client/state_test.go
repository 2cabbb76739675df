//go:build !js

package client_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

type moved struct {
	Player string `json:"player"`
	X      int    `json:"x"`
}

func (moved) MessageType() string { return "MOVED" }

func (m moved) ConflationKey() string { return m.Player }

type left struct {
	Player string `json:"player"`
}

func (left) MessageType() string { return "LEFT" }

func (m left) ConflationKey() string { return m.Player }

func TestSubscribe_StateFollowsEveryLoss(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	router.Topic(s.Router, "game", &router.TopicOptions{
		History: router.History{Messages: 3}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	var mu sync.Mutex
	players, losses := map[string]int{}, 0
	client.On(c, func(m moved, _ *client.Received) {
		mu.Lock()
		defer mu.Unlock()
		players[m.Player] = m.X
	})
	client.On(c, func(m left, _ *client.Received) {
		mu.Lock()
		defer mu.Unlock()
		delete(players, m.Player)
	})
	publish := func(want map[string]int, n int) {
		player := fmt.Sprint("p", rand.N(20))
		if rand.N(4) == 0 {
			err := s.Publish("game", left{player}, router.Removed(), router.Stored(ctx, nil))
			require.NoError(t, err)
			delete(want, player)
			return
		}
		err := s.Publish("game", moved{player, n}, router.Stored(ctx, nil))
		require.NoError(t, err)
		want[player] = n
	}
	want := map[string]int{}
	for n := range 50 {
		publish(want, n)
	}
	_, err := c.Subscribe(ctx, "game", &client.SubscribeOptions{State: true, OnLoss: func(client.Loss) {
		mu.Lock()
		defer mu.Unlock()
		clear(players)
		losses++
	}})
	require.NoError(t, err)
	for round := range 20 {
		if round%2 == 1 {
			s.cut()
		}
		for n := range 50 {
			publish(want, 1000*round+n)
		}
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return maps.Equal(want, players)
		}, time.Minute, time.Millisecond, "round %d", round)
	}
	require.Positive(t, losses)
}
