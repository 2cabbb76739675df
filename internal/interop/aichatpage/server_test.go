package aichatpage_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
)

type (
	ask struct {
		Chat string `json:"chat"`
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	asked struct {
		Run string `json:"run"`
	}
)

func (ask) MessageType() string   { return "ASK" }
func (asked) MessageType() string { return "ASKED" }

// TestServer_AnswersWhatThePageSends loads the page and asks a question, without a browser. The example tests the rest.
func TestServer_AnswersWhatThePageSends(t *testing.T) {
	server := program.Start(t)
	resp, err := http.Get(server.URL() + "/aichat.js")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(body), `from "./run.js"`)
	c := client.New("ws://"+server.Addr+"/ws?access_token=ann", nil)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	answer, err := client.Call[asked](t.Context(), c, ask{"chat", "q", "hello"})
	require.NoError(t, err)
	assert.NotEmpty(t, answer.Run)
}
