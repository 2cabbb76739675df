//go:build !js

package client_test

import (
	"context"
	"iter"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// TestGoAway_HandlerSubscribesTheNextConnection to a topic that the session has, before the session moves. Each publication is
// received once.
func TestGoAway_HandlerSubscribesTheNextConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, moveWhileJoined)
}

func moveWhileJoined(t *testing.T) {
	const publications = 500
	release, received := make(chan struct{}), make(chan string, 2*publications)
	shared, networks := memory.NewBroker(), [2]*delayedNetwork{}
	var routers [2]*router.Router
	for i := range routers {
		routers[i], networks[i] = newsRouter(shared, i, release), newDelayedNetwork(50*time.Millisecond)
		_, closeAll := networks[i].serve(routers[i])
		defer closeAll()
	}
	current := networks[0]
	httpClient := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return current.dial(ctx, network, address)
	}}}
	c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Resume: true})
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	client.On(c, func(m said, _ *client.Received) { received <- m.Text })
	_, err := client.Call[sum](t.Context(), c, add{})
	require.NoError(t, err)
	go func() { // keeps the first connection open
		for _, err := range client.Stream[row](context.Background(), c, count{}) {
			_ = err
		}
	}()
	time.Sleep(time.Second)
	current = networks[1]
	go func() { _ = routers[0].Shutdown(context.Background()) }()
	for moved := false; !moved; {
		reply, err := client.Call[sum](t.Context(), c, add{})
		require.NoError(t, err)
		moved = reply.Sum == 1
	}
	close(release)
	var want, got []string
	for i := range publications {
		want = append(want, strconv.Itoa(i))
		require.NoError(t, routers[1].Publish("news", said{want[i]}))
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(10 * time.Second)
	for len(received) > 0 {
		got = append(got, <-received)
	}
	assert.Equal(t, want, got)
}

// newsRouter returns a router that subscribes the callers of add, which returns n, and whose streams last until release is closed.
func newsRouter(shared *memory.Broker, n int, release <-chan struct{}) *router.Router {
	r := quietRouter(&router.Options{Broker: shared, Resume: router.ResumeOptions{Within: time.Minute}})
	router.Topic(r, "news", &router.TopicOptions{History: router.History{Messages: 1000}})
	router.Stream(r, func(*router.Context, count) iter.Seq2[row, error] {
		return func(func(row, error) bool) { <-release }
	})
	router.RPC(r, func(ctx *router.Context, _ add) (sum, error) { return sum{n}, ctx.Subscribe("news") })
	return r
}
