//go:build !js

package client_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// While a stream keeps the old connection open, calls and events use the next one.
func TestGoAway_OpenStreamDelaysNothing(t *testing.T) {
	t.Parallel()
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprint("session ", session), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { moveWithOpenStream(t, session) })
		})
	}
}

func TestGoAway_OnEveryConnectionIsFollowedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connected := make(chan time.Time, 1000)
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			connected <- time.Now()
			p.send("$ws:welcome", m, object{"concurrency": 64})
			p.send("$ws:goaway", nil, object{"reconnectAfterMs": 0})
		})
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient})
		require.NoError(t, c.Connect(t.Context()))
		time.Sleep(10 * time.Second)
		assert.Less(t, len(connected), 50)
		assert.Less(t, -(<-connected).Sub(<-connected), 100*time.Millisecond, "the first move has no backoff")
		require.NoError(t, c.Close(context.Background()))
	})
}

func moveWithOpenStream(t *testing.T, session bool) {
	networks, received := [2]*delayedNetwork{}, make(chan string, 10)
	var routers [2]*router.Router
	for i := range routers {
		opts := &router.Options{}
		if session {
			opts.Resume = router.ResumeOptions{Within: time.Minute}
		}
		r := quietRouter(opts)
		router.Stream(r, func(ctx *router.Context, _ count) iter.Seq2[row, error] {
			return func(yield func(row, error) bool) {
				yield(row{}, nil)
				<-ctx.Done()
			}
		})
		router.RPC(r, func(*router.Context, add) (sum, error) { return sum{i}, nil })
		router.On(r, func(_ *router.Context, m say) error { received <- fmt.Sprint(i, m.Text); return nil })
		routers[i], networks[i] = r, newDelayedNetwork(time.Millisecond)
		_, closeAll := networks[i].serve(r)
		defer closeAll()
	}
	current := networks[0]
	httpClient := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return current.dial(ctx, network, address)
	}}}
	c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Resume: session})
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	require.NoError(t, c.Connect(t.Context()))

	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var last error
		for _, err := range client.Stream[row](context.Background(), c, count{1}) {
			if last = err; err == nil {
				close(began)
			}
		}
		ended <- last
	}()
	<-began
	current = networks[1]
	shutdown := make(chan error, 1)
	go func() { shutdown <- routers[0].Shutdown(context.Background()) }()
	for moved := false; !moved; {
		start := time.Now()
		reply, err := client.Call[sum](t.Context(), c, add{})
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 100*time.Millisecond, "no call waits for the stream")
		moved = reply.Sum == 1
		time.Sleep(10 * time.Millisecond)
	}
	assert.Empty(t, ended, "the stream has its connection")
	require.NoError(t, client.Send(t.Context(), c, say{"a"}))
	assert.Equal(t, "1a", <-received)
	require.Error(t, <-ended)
	require.NoError(t, <-shutdown)
}
