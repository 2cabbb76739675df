package chatpage_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServer_AnswersWhatThePageSends loads the files of the page, and talks to the server as the page
// does, without a browser.
func TestServer_AnswersWhatThePageSends(t *testing.T) {
	node := startProgram(t)
	for path, want := range map[string]string{
		"/":                   `<script type="module" src="chat.js">`,
		"/chat.js":            `from "./penstock-client.js"`,
		"/penstock-client.js": "createClient",
	} {
		resp, err := http.Get(node.URL() + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode, path)
		assert.Contains(t, string(body), want, path)
	}

	ann, bob := dial(t, node.URL(), "ann"), dial(t, node.URL(), "bob")
	const join = `{"type":"JOIN_ROOM","meta":{"correlationId":"1"},"payload":{"room":"garden"}}`
	ann.send(join)
	ann.receive("ROOM_JOINED")
	bob.send(join)
	assert.Equal(t, []any{"ann", "bob"}, bob.receive("ROOM_JOINED")["users"])
	assert.Equal(t, "bob", ann.receive("USER_JOINED")["user"])
	ann.send(`{"type":"SAY","meta":{"correlationId":"2"},"payload":{"room":"garden","text":"Are the tomatoes ripe?","id":"7"}}`)
	said := bob.receive("SAID")
	assert.Equal(t, []any{"ann", "Are the tomatoes ripe?", "7"}, []any{said["user"], said["text"], said["id"]})
	bob.send(`{"type":"SEARCH_HISTORY","meta":{"correlationId":"3"},"payload":{"room":"garden","query":"tomato"}}`)
	assert.Equal(t, []any{said}, bob.receive("HISTORY_FOUND")["matches"])
	ann.send(`{"type":"WHO","meta":{"correlationId":"4"},"payload":{"room":"garden"}}`)
	assert.Equal(t, []any{"ann", "bob"}, ann.receive("USERS")["users"])
	bob.send(`{"type":"LEAVE_ROOM","meta":{},"payload":{"room":"garden"}}`)
	assert.Equal(t, "bob", ann.receive("USER_LEFT")["user"])
}

// A socket is a connection to the server without a client library.
type socket struct {
	t  *testing.T
	ws *websocket.Conn
}

func dial(t *testing.T, url, name string) *socket {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), url+"/ws?access_token="+name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &socket{t, ws}
}

func (s *socket) send(text string) {
	s.t.Helper()
	require.NoError(s.t, s.ws.Write(s.t.Context(), websocket.MessageText, []byte(text)))
}

// receive returns the payload of the next message of a type.
func (s *socket) receive(typ string) map[string]any {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		_, text, err := s.ws.Read(ctx)
		require.NoError(s.t, err, typ)
		var envelope struct {
			Type    string
			Payload map[string]any
		}
		require.NoError(s.t, json.Unmarshal(text, &envelope))
		if envelope.Type == typ {
			return envelope.Payload
		}
	}
}
