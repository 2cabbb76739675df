package router

import (
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConn_GreetedAfterTheGreeting(t *testing.T) {
	r := New(nil)
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(t.Context(), server.URL, nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	exchange := func(text string) {
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(text)))
		_, _, err := ws.Read(t.Context())
		require.NoError(t, err)
	}
	greeted := func() (found bool) {
		for c := range r.Conns() {
			found = c.sub.HasGreeted()
		}
		return found
	}
	exchange(`{"type":"__heartbeat"}`)
	assert.False(t, greeted())
	exchange(`{"type":"$ws:hello"}`)
	assert.True(t, greeted())
}
