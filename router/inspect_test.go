package router_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestObserveRefusals_CalledAfterOnRefused has an OnRefused that panics.
func TestObserveRefusals_CalledAfterOnRefused(t *testing.T) {
	var calls []string
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{UserID: "eve"}, errors.Errorf(errors.PermissionDenied, "banned")
		},
		OnRefused: func(router.Refusal) {
			calls = append(calls, "option")
			panic("OnRefused")
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	assert.PanicsWithValue(t, "router: ObserveRefusals needs a function", func() { r.ObserveRefusals(nil) })
	r.ObserveRefusals(func(refusal router.Refusal) { calls = append(calls, "observer of "+refusal.Identity.UserID) })
	routertest.Refused(t, r)
	assert.Equal(t, []string{"option", "observer of eve"}, calls)
	assert.Panics(t, func() { r.ObserveRefusals(func(router.Refusal) {}) }, "it serves")
}

// TestInspection_CountsCallsAndTokens looks at a connection while a call waits.
func TestInspection_CountsCallsAndTokens(t *testing.T) {
	r := router.New(&router.Options{Limits: router.Limits{MessagesPerConn: router.Rate{PerSecond: 1, Burst: 5}}})
	started, release := make(chan struct{}), make(chan struct{})
	router.RPC(r, func(c *router.Context, m Blob) (Blobbed, error) {
		close(started)
		<-release
		return Blobbed{}, c.Conn().Subscribe("news")
	})
	before := time.Now()
	client := routertest.Dial(t, r)
	answer := routertest.Start(client, Blob{})
	<-started
	for c := range r.Conns() {
		assert.WithinRange(t, c.OpenedAt(), before.Add(-time.Second), time.Now())
		found, ok := r.Host().Inspection.Conn(c.ID())
		require.True(t, ok)
		assert.Equal(t, 1, found.Calls)
		assert.Equal(t, 4, found.MessageTokens)
		assert.Equal(t, 5, found.MessageBurst)
		assert.Empty(t, found.Topics)
		close(release)
		routertest.ReceiveAnswer[Blobbed](answer)
		_, ok = r.Host().Inspection.Conn("none")
		assert.False(t, ok)
	}
}
