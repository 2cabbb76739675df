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
	"github.com/penstock-go/penstock/router"
)

func TestResume_UnsubscribeMeanwhileReachesTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		session := object{"token": "secret", "resumeWithinMs": 60_000}
		lobby := object{"topic": "lobby", "epoch": "K7", "offset": 1, "recovered": true}
		cut, resuming, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
		requests := make(chan string, 10)
		httpClient, closeAll := serveScript(func(p peer, m *received) {
			switch m.Type {
			case "$ws:hello":
				welcome := object{"concurrency": 64}
				if p.number == 1 {
					welcome["session"] = session
				}
				p.send("$ws:welcome", m, welcome)
			case "$ws:subscribe":
				p.send("$ws:subscribed", m, lobby)
				<-cut
				_ = p.CloseNow()
			case "$ws:resume":
				close(resuming)
				<-goOn
				p.send("$ws:resumed", m, object{"session": session, "memberId": "c", "topics": []object{lobby}})
			default:
				requests <- m.Type
			}
		})
		defer closeAll()
		c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Resume: true, Logger: slog.New(slog.DiscardHandler)})
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		sub, err := c.Subscribe(t.Context(), "lobby", nil)
		require.NoError(t, err)
		close(cut)
		<-resuming
		sub.Unsubscribe()
		close(goOn)
		time.Sleep(time.Second)
		require.Len(t, requests, 2)
		assert.Equal(t, []string{"$ws:ack", "$ws:unsubscribe"}, []string{<-requests, <-requests})
	})
}

func TestConnection_SaysWhatTheServerHasAnnounced(t *testing.T) {
	t.Parallel()
	s := startServer(t, &router.Options{Resume: router.ResumeOptions{Within: time.Minute}, ContractHash: "0123456789abcdef\n"})
	s.start()
	c, ctx := s.connect(&client.Options{Resume: true}), testContext(t)
	_, ok := c.Connection()
	assert.False(t, ok)
	require.NoError(t, c.Connect(ctx))
	first, ok := c.Connection()
	require.True(t, ok)
	assert.NotNil(t, s.Conn(first.ID))
	assert.Equal(t, client.Connection{ID: first.ID, MemberID: first.ID, ContractHash: "0123456789abcdef"}, first)
	s.cut()
	require.NoError(t, reconnected(ctx, c))
	second, ok := c.Connection()
	require.True(t, ok)
	assert.True(t, second.Resumed)
	assert.NotEqual(t, first.ID, second.ID)
	assert.Equal(t, first.ID, second.MemberID)
	require.NoError(t, c.Close(ctx))
	_, ok = c.Connection()
	assert.False(t, ok)
}
