//go:build !js

package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// TestSubscribe_TakesTheLatest subscribes twice to a topic with a history, and once more after a loss.
func TestSubscribe_TakesTheLatest(t *testing.T) {
	t.Parallel()
	var r *router.Router
	publish := func(t *testing.T, from, to int) {
		for i := from; i <= to; i++ {
			require.NoError(t, r.Publish("room", said{Text: fmt.Sprint(i)}))
		}
	}
	start := func() *router.Router {
		r = router.New(nil)
		router.Topic(r, "room", &router.TopicOptions{
			Authorize: func(*router.Context, router.TopicMatch) error { return nil }, History: router.History{Messages: 20},
		})
		router.Topic(r, "plain", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
		return r
	}
	simulate(t, false, start, func(s *simulated) {
		publish(s.T, 1, 10)
		subscribe := func(last int, since client.Position) (texts *[]string) {
			texts = new([]string)
			_, err := s.Subscribe(s.Context(), "room", &client.SubscribeOptions{
				Last: last, Since: since, OnLoss: func(client.Loss) { *texts = append(*texts, "loss") },
				Handlers: []client.Handler{client.HandlerFor(func(m said, _ *client.Received) { *texts = append(*texts, m.Text) })},
			})
			require.NoError(s, err)
			time.Sleep(time.Second)
			synctest.Wait()
			return texts
		}
		first := subscribe(3, client.Position{})
		assert.Equal(s, []string{"8", "9", "10"}, *first)
		publish(s.T, 11, 11)
		time.Sleep(time.Second)
		second := subscribe(2, client.Position{Offset: 5})
		assert.Equal(s, []string{"9", "10", "11"}, *second, "the largest number holds for all, and a position without an epoch is none")
		assert.Equal(s, []string{"8", "9", "10", "11"}, *first, "the other one has received them before")

		_, err := s.Subscribe(s.Context(), "plain", &client.SubscribeOptions{Last: 3})
		require.NoError(s, err)
		assert.Equal(s, "$ws:subscribe FAILED_PRECONDITION", <-s.errors, "without a history")

		s.cut()
		publish(s.T, 12, 60)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(s, []string{"loss", "58", "59", "60"}, (*first)[4:])
		assert.Equal(s, []string{"loss", "58", "59", "60"}, (*second)[3:])
	})
}
