//go:build !js

package client_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type note struct{ Text string }

func (note) MessageType() string { return "NOTE" }

type longNote struct{ Text string }

func (longNote) MessageType() string { return "LONG_NOTE" }

type rowsOf struct{ Text string }

func (rowsOf) MessageType() string { return "ROWS_OF" }

type length struct{ Bytes int }

func (length) MessageType() string { return "LENGTH" }

type question struct{}

func (question) MessageType() string { return "QUESTION" }

const smallLimit = 2_000

// smallRouter refuses messages of more than 2,000 bytes.
func smallRouter(opts *router.Options) *router.Router {
	opts.Limits.MaxMessageBytes = smallLimit
	r := quietRouter(opts)
	router.RPC(r, func(_ *router.Context, m note) (length, error) { return length{len(m.Text)}, nil })
	router.On(r, func(*router.Context, say) error { return nil })
	router.Stream(r, func(*router.Context, rowsOf) iter.Seq2[row, error] { return func(func(row, error) bool) {} })
	return r
}

func TestSize_WhatIsAboveTheLimitFailsAtOnceAndAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan *router.Conn, 10)
		r := smallRouter(&router.Options{OnOpen: func(_ context.Context, conn *router.Conn) error { conns <- conn; return nil }})
		router.RPC(r, func(_ *router.Context, m longNote) (length, error) { return length{len(m.Text)}, nil }).MaxMessageBytes(2 * smallLimit)
		httpClient, closeAll := newDelayedNetwork(time.Millisecond).serve(r)
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		client.Handle(c, func(context.Context, question) (note, error) { return note{strings.Repeat("x", 2*smallLimit)}, nil })
		require.NoError(t, c.Connect(t.Context()))

		text := strings.Repeat("x", 2*smallLimit)
		waits := make(chan error, 1)
		go func() {
			_, err := client.Call[length](t.Context(), c, note{"short"})
			waits <- err
		}()
		_, called := client.Call[length](t.Context(), c, note{text})
		sent := client.Send(t.Context(), c, say{Text: text})
		var streamed error
		for _, err := range client.Stream[row](t.Context(), c, rowsOf{text}) {
			streamed = err
		}
		for what, err := range map[string]error{"call": called, "event": sent, "stream": streamed} {
			e, ok := errors.AsType[*errors.Error](err)
			require.True(t, ok, "%s: %v", what, err)
			assert.Equal(t, errors.ResourceExhausted, e.Code, what)
			assert.False(t, e.Retryable(), what)
			details := errors.DetailsOf[errors.LimitDetails](e)
			assert.Equal(t, "payload", details.Kind, what)
			assert.EqualValues(t, smallLimit, details.Limit, what)
			assert.Greater(t, details.Observed, int64(smallLimit), what)
		}
		require.NoError(t, <-waits)
		reply, err := client.Call[length](t.Context(), c, longNote{text[smallLimit:]})
		require.NoError(t, err, "the limit of the type")
		assert.Equal(t, smallLimit, reply.Bytes)

		_, err = router.Call[note](t.Context(), <-conns, question{})
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), "an answer: %v", err)
		assert.Empty(t, conns, "no other connection was needed")
	})
}

func TestSize_SessionWithMoreTopicsThanFitIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const topics = 60
		opts := &router.Options{Resume: router.ResumeOptions{Within: time.Minute}}
		r := smallRouter(opts)
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
		network := newDelayedNetwork(time.Millisecond)
		httpClient, closeAll := network.serve(r)
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Resume: true})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		received := make(chan string, topics)
		client.On(c, func(m said, from *client.Received) { received <- from.Topic })
		for i := range topics {
			_, err := c.Subscribe(t.Context(), fmt.Sprint("room/", i), nil)
			require.NoError(t, err)
		}
		network.cut()
		time.Sleep(5 * time.Second)
		assert.Equal(t, client.Open, c.State())
		info, _ := c.Connection()
		assert.True(t, info.Resumed)
		for i := range topics {
			require.NoError(t, r.Publish(fmt.Sprint("room/", i), said{}))
		}
		time.Sleep(time.Second)
		assert.Len(t, received, topics)
	})
}

func TestRefresh_TokenRequestThatHangsIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refreshed := make(chan time.Time, 1)
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			switch m.Type {
			case "$ws:hello":
				p.send("$ws:welcome", m, object{"concurrency": 64})
				p.send("$ws:identity-expiring", nil, object{"expiresInMs": 60_000})
			case "$ws:auth":
				refreshed <- time.Now()
				p.send("$ws:authenticated", m, object{})
			}
		})
		defer closeAll()
		requests := 0
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Token: func(ctx context.Context, _ bool) (string, error) {
			if requests++; requests == 2 {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return "secret", nil
		}})
		require.NoError(t, c.Connect(t.Context()))
		connected := time.Now()
		assert.WithinDuration(t, connected, <-refreshed, 15*time.Second)
		require.NoError(t, c.Close(context.Background()))
	})
}
