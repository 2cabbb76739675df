//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

func TestClient_PingMeasuresTheRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var current peer
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			current = p
			p.send("$ws:welcome", m, object{})
		})
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Logger: slog.New(slog.DiscardHandler)})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		_, err := c.Ping(t.Context())
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err), "there is no connection yet")
		require.NoError(t, c.Connect(t.Context()))
		roundTrip, err := c.Ping(t.Context())
		require.NoError(t, err)
		assert.Positive(t, roundTrip)
		assert.LessOrEqual(t, roundTrip, 4*time.Millisecond, "at most two milliseconds there, and two back")

		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		for range 20 {
			_, err = c.Ping(ctx)
			require.ErrorIs(t, err, over)
			synctest.Wait()
		}
		_, err = c.Ping(t.Context())
		require.NoError(t, err, "those that were canceled have not closed the connection")
		time.AfterFunc(time.Nanosecond, func() { _ = current.CloseNow() })
		_, err = c.Ping(t.Context())
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err), "the connection is lost meanwhile")
	})
}

func TestClient_RetryAtIsWhenTheNextAttemptBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		httpClient, closeAll := serveScript(func(p peer, m *received) { _ = p.Close(1013, "") })
		defer closeAll()
		var c *client.Client // before it is used for the first time
		var expected []time.Time
		opts := client.Options{HTTPClient: httpClient, Logger: slog.New(slog.DiscardHandler), OnState: func(s client.State, _ error) {
			at, ok := c.RetryAt()
			assert.Equal(t, s == client.Waiting, ok, s)
			if ok {
				expected = append(expected, at)
			} else if len(expected) > 0 && s == client.Connecting {
				assert.Equal(t, expected[len(expected)-1], time.Now())
			}
		}}
		c = client.New("ws://example.com/", &opts)
		go func() { _ = c.Connect(context.Background()) }()
		time.Sleep(time.Minute)
		require.NoError(t, c.Close(context.Background()))
		synctest.Wait()
		assert.Greater(t, len(expected), 2)
	})
}

func TestClient_OnAnyReceivesMessagesOfEveryType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			p.send("$ws:welcome", m, object{})
			p.send("SAID", nil, object{"text": "hi"})
			p.send("OTHER", nil, object{"n": 7})
			p.send("SAID", nil, object{"text": "again"})
		})
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Logger: slog.New(slog.DiscardHandler)})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		var order []string
		var stop func()
		stop = c.OnAny(func(r *client.Received) {
			var payload object
			require.NoError(t, r.Decode(&payload))
			order = append(order, "any "+r.Type)
			if payload["n"] != nil {
				stop()
			}
		})
		client.On(c, func(m said, _ *client.Received) { order = append(order, m.Text) })
		require.NoError(t, c.Connect(t.Context()))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"hi", "any SAID", "any OTHER", "again"}, order)
	})
}
