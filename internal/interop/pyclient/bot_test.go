package pyclient_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/interop/pythontest"
)

var chat = exampletest.Example{Name: "chat"}

func TestMain(m *testing.M) { chat.Main(m) }

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

// TestBot_AnswersAndReturns starts the program that the bot has joined again, without what it has known.
func TestBot_AnswersAndReturns(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/bot-python")
	require.NoError(t, err)
	server := chat.Start(t)
	url := "ws://" + server.Addr + "/ws"
	bot := pythontest.Find(t).Command(t.Context(), filepath.Join(dir, "bot.py"), "go", url)
	var printed bytes.Buffer
	bot.Stdout, bot.Stderr = &printed, &printed
	require.NoError(t, bot.Start())
	t.Cleanup(func() {
		_ = bot.Process.Kill()
		_ = bot.Wait()
		assert.Empty(t, printed.String(), "errors of the bot")
	})
	assert.Equal(t, "ann rolls", askBot(t, url, "!roll"))
	assert.Equal(t, "here are", askBot(t, url, "!who"))
	server.Kill()
	server.Restart()
	assert.Equal(t, "I know", askBot(t, url, "!help"))
}

// askBot joins the room, waits for the bot, and returns the first two words of its answer.
func askBot(t *testing.T, url, question string) string {
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

func TestBot_TypesAndStyle(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/bot-python")
	require.NoError(t, err)
	runPython(t, []string{"MYPYPATH=src"}, "mypy", "--strict", "--cache-dir", t.TempDir(), filepath.Join(dir, "bot.py"))
	runPython(t, nil, "ruff", "check", "--config", `src = ["../../examples/bot-python"]`, filepath.Join(dir, "bot.py"))
	runPython(t, nil, "ruff", "format", "--check", filepath.Join(dir, "bot.py"))
}
