package chatpage_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
)

type (
	joinRoom struct {
		Room string `json:"room"`
	}
	roomJoined struct {
		Users []string `json:"users"`
	}
)

func (joinRoom) MessageType() string   { return "JOIN_ROOM" }
func (roomJoined) MessageType() string { return "ROOM_JOINED" }

// TestServer_AnswersWhatThePageSends loads the page and sends its first message, without a browser. Package chat tests the rest.
func TestServer_AnswersWhatThePageSends(t *testing.T) {
	node := startProgram(t)
	resp, err := http.Get(node.URL() + "/chat.js")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(body), `from "./penstock-client.js"`)
	c := client.New("ws://"+node.Addr+"/ws?access_token=ann", nil)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	joined, err := client.Call[roomJoined](t.Context(), c, joinRoom{"garden"})
	require.NoError(t, err)
	assert.Equal(t, []string{"ann"}, joined.Users)
}
