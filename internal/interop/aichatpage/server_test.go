package aichatpage_test

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

// TestServer_AnswersWhatThePageSends loads the files of the page, and talks to the server as the
// page does, without a browser.
func TestServer_AnswersWhatThePageSends(t *testing.T) {
	server := program.Start(t)
	for path, want := range map[string]string{
		"/":                   `<script type="module" src="aichat.js">`,
		"/aichat.js":          `from "./run.js"`,
		"/run.js":             `stream(client, "aisdk.chunk.attach"`,
		"/penstock-client.js": "createClient",
	} {
		resp, err := http.Get(server.URL() + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Contains(t, string(body), want, path)
	}

	ws, _, err := websocket.Dial(t.Context(), server.URL()+"/ws?access_token=ann", nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	send := func(text string) {
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(text)))
	}
	receive := func(typ string) (payload map[string]any) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			_, text, err := ws.Read(ctx)
			require.NoError(t, err, typ)
			var envelope struct {
				Type    string
				Payload map[string]any
			}
			require.NoError(t, json.Unmarshal(text, &envelope))
			if envelope.Type == typ {
				return envelope.Payload
			}
		}
	}
	send(`{"type":"$ws:subscribe","meta":{"correlationId":"1"},"payload":{"topic":"messages/ann/chat","positions":true}}`)
	receive("$ws:subscribed")
	send(`{"type":"GET_BUDGET","meta":{"correlationId":"2"},"payload":{}}`)
	assert.Len(t, receive("BUDGET")["limits"], 2)
	send(`{"type":"ASK","meta":{"correlationId":"3"},"payload":{"chat":"chat","id":"q","text":"hello"}}`)
	assert.Equal(t, "hello", receive("MESSAGE")["text"])
	send(`{"type":"OPEN_CHAT","meta":{"correlationId":"4"},"payload":{"chat":"chat"}}`)
	run, ok := receive("CHAT_OPENED")["run"].(string)
	require.True(t, ok)
	send(`{"type":"aisdk.chunk.attach","meta":{"correlationId":"5","credit":16},"payload":{"topic":"answer/ann/chat","run":"` + run + `","from":0}}`)
	for {
		if item, _ := receive("$ws:rpc-progress")["item"].(map[string]any); item["type"] == "text-delta" {
			break
		}
	}
	send(`{"type":"aisdk.chunk.stop","meta":{"correlationId":"6"},"payload":{"topic":"answer/ann/chat","run":"` + run + `"}}`)
	assert.Equal(t, "stopped", receive("run.ended")["state"])
	send(`{"type":"OPEN_CHAT","meta":{"correlationId":"7"},"payload":{"chat":"chat"}}`)
	opened := receive("CHAT_OPENED")
	assert.NotContains(t, opened, "run", "the answer is among the messages")
	assert.Len(t, opened["messages"], 2)
}
