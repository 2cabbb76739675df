package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

const nodeArgs = "PENSTOCK_CHAT_ARGS"

// TestMain runs the chat instead of the tests if startNode has started this process.
func TestMain(m *testing.M) {
	if args := os.Getenv(nodeArgs); args != "" {
		os.Exit(run(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// A node is a chat server in its own process.
type node struct {
	url string
	cmd *exec.Cmd
}

func startNode(t *testing.T, args string) *node {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	n := &node{cmd: exec.Command(self)}
	n.cmd.Env = append(os.Environ(), nodeArgs+"="+args)
	stdout, err := n.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, n.cmd.Start())
	t.Cleanup(n.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	n.url = strings.TrimSpace(strings.TrimPrefix(line, "chat: open "))
	return n
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// A client is connected to one node.
type client struct {
	t  *testing.T
	ws *websocket.Conn
}

func (n *node) dial(t *testing.T, name string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, n.url+"/ws?access_token="+name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &client{t, ws}
}

func (c *client) send(m router.Message) {
	text, err := json.Marshal(map[string]any{"type": m.MessageType(), "payload": m})
	require.NoError(c.t, err)
	require.NoError(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, text))
}

// An envelope is a received message.
type envelope struct {
	Type    string
	Meta    struct{ Offset uint64 }
	Payload json.RawMessage
}

func (c *client) next() (e envelope) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	_, text, err := c.ws.Read(ctx)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(text, &e))
	return e
}

// receive skips messages until one of type M matches.
func receive[M router.Message](c *client, matches func(M) bool) M {
	c.t.Helper()
	for {
		e := c.next()
		var m M
		if e.Type != m.MessageType() {
			continue
		}
		require.NoError(c.t, json.Unmarshal(e.Payload, &m))
		if matches(m) {
			return m
		}
	}
}

// countAdmitted sends m several times and returns how often the rate limit admitted it.
func (c *client) countAdmitted(m router.Message, count int) (n int) {
	for range count {
		c.send(m)
	}
	for range count {
		_, text, err := c.ws.Read(c.t.Context())
		require.NoError(c.t, err)
		if !strings.Contains(string(text), `"RESOURCE_EXHAUSTED"`) {
			n++
		}
	}
	return n
}

// Nothing listens on the address of Redis.
func TestNodes_DivideRateLimitWhileRedisDoesNotAnswer(t *testing.T) {
	n := startNode(t, "-addr=localhost:0 -capacity=100 -refill=1 -nodes=10 -key=user -redis=redis://127.0.0.1:1")
	admitted := n.dial(t, "ann").countAdmitted(Who{"go"}, 50)
	assert.GreaterOrEqual(t, admitted, 10)
	assert.LessOrEqual(t, admitted, 12, "a token returns after ten seconds")
}

// The second node is killed, so that it cannot announce that its users leave.
func TestNodes_ShareRoomsPresenceAndLimits(t *testing.T) {
	args := "-addr=localhost:0 -refill=1 -capacity=10 -key=user -redis=redis://" + redistest.Start(t).Addr
	one, two := startNode(t, args), startNode(t, args)
	ann, bob := one.dial(t, "ann"), two.dial(t, "bob")
	ann.send(JoinRoom{Room: "go"})
	receive(ann, func(RoomJoined) bool { return true })
	bob.send(JoinRoom{Room: "go"})
	receive(ann, func(m UserJoined) bool { return m == UserJoined{"go", "bob"} })
	receive(bob, func(m UserJoined) bool { return m == UserJoined{"go", "ann"} })
	bob.send(Who{"go"})
	assert.Equal(t, []string{"ann", "bob"}, receive(bob, func(Users) bool { return true }).Users)

	ann.send(Say{Room: "go", Text: "hello from node one"})
	assert.Equal(t, "ann", receive(bob, func(m Said) bool { return m.Text == "hello from node one" }).User)
	bob.send(Say{Room: "go", Text: "hello from node two"})
	receive(ann, func(m Said) bool { return m.Text == "hello from node two" })

	eve, eveOnTwo := one.dial(t, "eve"), two.dial(t, "eve")
	spent := eve.countAdmitted(Who{"go"}, 30)
	assert.GreaterOrEqual(t, spent, 10)
	assert.LessOrEqual(t, eveOnTwo.countAdmitted(Who{"go"}, 30), 3, "both nodes take tokens from the same bucket")

	two.kill()
	receive(ann, func(m UserLeft) bool { return m == UserLeft{"go", "bob"} })
	ann.send(Who{"go"})
	assert.Equal(t, []string{"ann"}, receive(ann, func(Users) bool { return true }).Users)
}
