package router_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// TestIdentity_OverSocket is the story of a client that logs in, is rejected with another user's
// token, refreshes its identity, is warned, and is closed when the identity expires.
func TestIdentity_OverSocket(t *testing.T) {
	t.Parallel()
	r := newLoginRouter(router.Options{})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	type frame struct {
		Type    string         `json:"type"`
		Payload map[string]any `json:"payload"`
	}
	receive := func() (f frame) {
		require.NoError(t, wsjson.Read(ctx, ws, &f))
		return f
	}
	auth := func(token string) frame {
		require.NoError(t, wsjson.Write(ctx, ws, map[string]any{"type": "$ws:auth", "payload": map[string]any{"token": token}}))
		return receive()
	}
	whoAmI := func() any {
		require.NoError(t, wsjson.Write(ctx, ws, map[string]any{"type": "WHO_AM_I"}))
		return receive().Payload["user"]
	}
	assert.Empty(t, whoAmI())
	router.Greet(collect(r)[0])

	answer := auth("ann 1h")
	assert.Equal(t, "$ws:authenticated", answer.Type)
	assert.InDelta(t, 3600_000, answer.Payload["expiresInMs"], 60_000)
	assert.Equal(t, "ann", whoAmI())
	assert.Equal(t, string(errors.PermissionDenied), auth("bob 1h").Payload["code"])
	assert.Equal(t, "ann", whoAmI())

	before := time.Now()
	assert.Equal(t, "$ws:authenticated", auth("ann 1s").Type)
	warning := receive()
	assert.Equal(t, "$ws:identity-expiring", warning.Type)
	assert.LessOrEqual(t, warning.Payload["expiresInMs"], 500.0)
	_, _, err = ws.Read(ctx)
	var closed websocket.CloseError
	require.ErrorAs(t, err, &closed)
	assert.Equal(t, identityExpired, router.CloseError{Code: router.StatusCode(closed.Code), Reason: closed.Reason})
	assert.GreaterOrEqual(t, time.Since(before), time.Second)
}
