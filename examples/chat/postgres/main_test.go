package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/examples/chat/internal/chat"
	"github.com/penstock-go/penstock/internal/postgrestest"
)

const nodeArgs = "PENSTOCK_CHAT_ARGS"

// TestMain runs the chat instead of the tests if startNode has started this process.
func TestMain(m *testing.M) {
	if args := os.Getenv(nodeArgs); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
	}
	os.Exit(m.Run())
}

// startNode returns the host and port of a node, and what kills it.
func startNode(t *testing.T, database string) (addr string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nodeArgs+"=-addr=127.0.0.1:0 -postgres="+database)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	_, err = fmt.Fscanf(bufio.NewReader(stdout), "chat: open http://%s\n", &addr)
	require.NoError(t, err)
	return addr, kill
}

// A member is a user in the room "go".
type member struct {
	*client.Client
	heard chan string
}

func join(t *testing.T, addr, name string) (m member, joined chat.RoomJoined) {
	t.Helper()
	m = member{client.New("ws://"+addr+"/ws?access_token="+name, nil), make(chan string, 100)}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	client.On(m.Client, func(s chat.Said, _ *client.Received) { m.heard <- s.User + ": " + s.Text })
	joined, err := client.Call[chat.RoomJoined](t.Context(), m.Client, chat.JoinRoom{Room: "go"})
	require.NoError(t, err)
	return m, joined
}

func (m member) say(t *testing.T, text string) {
	t.Helper()
	_, err := client.Call[chat.Stored](t.Context(), m.Client, chat.Say{Room: "go", Text: text, ID: text})
	require.NoError(t, err)
}

func (m member) hear(t *testing.T) string {
	t.Helper()
	select {
	case text := <-m.heard:
		return text
	case <-time.After(20 * time.Second):
		t.Fatal("no message")
		return ""
	}
}

func TestRun_WrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-postgres=x://y":                          "chat: -postgres: cannot parse `x://y`",
		"-postgres=postgres://x -redis=redis://x":  "chat: -postgres cannot be combined with -redis and -nodes",
		"-postgres=postgres://x -nodes=2":          "chat: -postgres cannot be combined with -redis and -nodes",
		"-postgres=postgres://127.0.0.1:1/nowhere": "chat: -postgres: postgres: migrate the schema",
	} {
		var stdout, stderr strings.Builder
		assert.Equal(t, 2, chat.Run(t.Context(), strings.Fields(args), &stdout, &stderr, store), args)
		assert.Contains(t, stderr.String(), want)
	}
}

func TestNodes_ShareRoomsHistoryAndPresence(t *testing.T) {
	database := postgrestest.Shared(t)
	first, kill := startNode(t, database)
	second, _ := startNode(t, database)
	ann, _ := join(t, first, "ann")
	bob, _ := join(t, second, "bob")
	ann.say(t, "hello")
	bob.say(t, "hi")
	for _, m := range []member{ann, bob} {
		assert.Equal(t, "ann: hello", m.hear(t))
		assert.Equal(t, "bob: hi", m.hear(t))
	}
	assert.Eventually(t, func() bool {
		users, err := client.Call[chat.Users](t.Context(), bob.Client, chat.Who{Room: "go"})
		return err == nil && assert.ObjectsAreEqual([]string{"ann", "bob"}, users.Users)
	}, 20*time.Second, 100*time.Millisecond)

	kill()
	bob.say(t, "are you there?")
	third, _ := startNode(t, database)
	_, joined := join(t, third, "ann")
	var texts []string
	for _, m := range joined.History {
		texts = append(texts, m.Text)
	}
	assert.Equal(t, []string{"hello", "hi", "are you there?"}, texts)
}
