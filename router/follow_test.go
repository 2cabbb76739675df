package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type followed struct {
	N int `json:"n"`
}

func (followed) MessageType() string { return "followed" }

// followedNodes returns routers with a store, whose topics keep five messages.
func followedNodes(t *testing.T) (a, b *router.Router) {
	store := memory.NewBroker()
	var nodes [2]*router.Router
	for i := range nodes {
		r := router.New(&router.Options{Broker: store})
		router.Topic(r, "feed/{id}", &router.TopicOptions{History: router.History{Messages: 5}, Messages: []router.Message{followed{}}})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
		})
		nodes[i] = r
	}
	return nodes[0], nodes[1]
}

func publishFollowed(t *testing.T, r *router.Router, n int) {
	require.NoError(t, r.Publish("feed/1", followed{n}))
}

func TestRouter_FollowRefusesWhatItCannotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := followedNodes(t)
		for n := range 20 {
			publishFollowed(t, r, n)
		}
		_, current, err := r.ReadHistory(t.Context(), "feed/1", broker.Query{})
		require.NoError(t, err)
		for name, test := range map[string]struct {
			topic string
			after broker.Position
			code  errors.Code
		}{
			"an invalid topic":          {"\x00", broker.Position{}, errors.InvalidArgument},
			"a topic without a history": {"other", broker.Position{}, errors.FailedPrecondition},
			"another epoch":             {"feed/1", broker.Position{Epoch: "other", Offset: 20}, errors.FailedPrecondition},
			"not retained any more":     {"feed/1", broker.Position{Epoch: current.Epoch, Offset: 3}, errors.FailedPrecondition},
			"the future":                {"feed/1", broker.Position{Epoch: current.Epoch, Offset: 21}, errors.InvalidArgument},
		} {
			values := 0
			for _, err := range r.Follow(t.Context(), test.topic, test.after) {
				values++
				assert.Equal(t, test.code, errors.CodeOf(err), "%s: %v", name, err)
			}
			assert.Equal(t, 1, values, name)
		}
	})
}

func TestRouter_FollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := followedNodes(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ends := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				for _, err := range r.Follow(ctx, "feed/1", broker.Position{}) {
					ends <- err
				}
			}()
		}
		synctest.Wait()
		cause := errors.New("enough")
		cancel(cause)
		assert.ErrorIs(t, <-ends, cause)
		require.NoError(t, r.Shutdown(t.Context()))
		assert.Equal(t, errors.Unavailable, errors.CodeOf(<-ends))
	})
}

// TestRouter_FollowBeginsAtAnExpiredEnd has a topic whose messages are all too old.
func TestRouter_FollowBeginsAtAnExpiredEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := followedNodes(t)
		publishFollowed(t, r, 1)
		time.Sleep(25 * time.Hour)
		received := make(chan broker.Position)
		go func() {
			for m, err := range r.Follow(t.Context(), "feed/1", broker.Position{}) {
				if assert.NoError(t, err) {
					received <- m.Position
				}
				return
			}
		}()
		synctest.Wait()
		publishFollowed(t, r, 2)
		assert.EqualValues(t, 2, (<-received).Offset)
	})
}

// TestRouter_FollowReceivesOnceAndInOrder publishes on two nodes while others follow from different positions.
func TestRouter_FollowReceivesOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := followedNodes(t)
		const messages = 200
		received := make(chan string, 4)
		follow := func(r *router.Router, after broker.Position) {
			text := ""
			for m, err := range r.Follow(t.Context(), "feed/1", after) {
				if !assert.NoError(t, err) {
					break
				}
				var f followed
				assert.NoError(t, m.Decode(&f))
				text += fmt.Sprint(f.N, " ")
				if f.N == messages-1 {
					break
				}
			}
			received <- text
		}
		want := ""
		for n := range messages {
			want += fmt.Sprint(n, " ")
		}
		go follow(a, broker.Position{})
		go follow(b, broker.Position{})
		synctest.Wait()
		for n := range messages {
			r := a
			if n%2 == 1 {
				r = b
			}
			publishFollowed(t, r, n)
			synctest.Wait()
			if n == messages/2 {
				_, at, err := a.ReadHistory(t.Context(), "feed/1", broker.Query{})
				require.NoError(t, err)
				go follow(b, at)
			}
		}
		half := ""
		for n := messages/2 + 1; n < messages; n++ {
			half += fmt.Sprint(n, " ")
		}
		assert.ElementsMatch(t, []string{want, want, half}, []string{<-received, <-received, <-received})
	})
}
