// Package bottest tests the bots of the chat example, which are written in several languages.
package bottest

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
)

// The messages of the chat that the test uses.
type (
	joinRoom struct {
		Room string `json:"room"`
	}
	roomJoined struct {
		Users []string `json:"users"`
	}
	sayInRoom struct {
		Room string `json:"room"`
		Text string `json:"text"`
	}
	stored       struct{}
	saidByMember struct {
		User string `json:"user"`
		Text string `json:"text"`
	}
)

func (joinRoom) MessageType() string     { return "JOIN_ROOM" }
func (roomJoined) MessageType() string   { return "ROOM_JOINED" }
func (sayInRoom) MessageType() string    { return "SAY" }
func (stored) MessageType() string       { return "STORED" }
func (saidByMember) MessageType() string { return "SAID" }

// AnswersAndReturns fails the test unless a bot answers in a room of the chat, and joins it again after the server has started again,
// which then knows nothing of the bot. command returns the program of the bot.
func AnswersAndReturns(t *testing.T, chat *exampletest.Example, command func(room, url string) *exec.Cmd) {
	t.Helper()
	server := chat.Start(t)
	url := "ws://" + server.Addr + "/ws"
	bot := command("go", url)
	var printed bytes.Buffer
	bot.Stdout, bot.Stderr = &printed, &printed
	require.NoError(t, bot.Start())
	t.Cleanup(func() {
		_ = bot.Process.Kill()
		_ = bot.Wait()
		assert.Empty(t, printed.String(), "errors of the bot")
	})
	assert.Equal(t, "ann rolls", ask(t, url, "!roll"))
	assert.Equal(t, "here are", ask(t, url, "!who"))
	assert.Equal(t, "2 messages", ask(t, url, "!find rolls"))
	server.Kill()
	server.Restart()
	assert.Equal(t, "I know", ask(t, url, "!help"))
}

// ask joins the room, waits for the bot, and returns the first two words of its answer.
func ask(t *testing.T, url, question string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ann := client.New(url, &client.Options{Token: func(context.Context, bool) (string, error) { return "ann", nil }})
	defer func() { _ = ann.Close(ctx) }()
	answers := make(chan string, 100)
	client.On(ann, func(m saidByMember, _ *client.Received) {
		if m.User == "bot" {
			answers <- m.Text
		}
	})
	for joined := (roomJoined{}); !slices.Contains(joined.Users, "bot"); time.Sleep(100 * time.Millisecond) {
		var err error
		joined, err = client.Call[roomJoined](ctx, ann, joinRoom{"go"})
		require.NoError(t, err)
	}
	_, err := client.Call[stored](ctx, ann, sayInRoom{"go", question})
	require.NoError(t, err)
	select {
	case answer := <-answers:
		return strings.Join(strings.Fields(answer)[:2], " ")
	case <-ctx.Done():
		t.Fatal("the bot does not answer")
		return ""
	}
}
