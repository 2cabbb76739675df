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

// TestMain is the chat itself where a test starts this binary as a node.
func TestMain(m *testing.M) {
	if args := os.Getenv(nodeArgs); args != "" {
		os.Exit(run(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// A node is a chat in a process of its own.
type node struct {
	url string
	cmd *exec.Cmd
}

func startNode(t *testing.T, args string) *node {
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

// A person talks to a node.
type person struct {
	t  *testing.T
	ws *websocket.Conn
}

func (n *node) dial(t *testing.T, name string) *person {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, n.url+"/ws?access_token="+name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &person{t, ws}
}

func (p *person) send(m router.Message) {
	text, err := json.Marshal(map[string]any{"type": m.MessageType(), "payload": m})
	require.NoError(p.t, err)
	require.NoError(p.t, p.ws.Write(p.t.Context(), websocket.MessageText, text))
}

// receive passes over everything until a message of a type that fits.
func receive[M router.Message](p *person, fits func(M) bool) M {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, text, err := p.ws.Read(ctx)
		require.NoError(p.t, err)
		var frame struct {
			Type    string
			Payload json.RawMessage
		}
		require.NoError(p.t, json.Unmarshal(text, &frame))
		var m M
		if frame.Type != m.MessageType() {
			continue
		}
		require.NoError(p.t, json.Unmarshal(frame.Payload, &m))
		if fits(m) {
			return m
		}
	}
}

// admitted sends messages and returns how many are answered, not refused.
func (p *person) admitted(m router.Message, messages int) (n int) {
	for range messages {
		p.send(m)
	}
	for range messages {
		_, text, err := p.ws.Read(p.t.Context())
		require.NoError(p.t, err)
		if !strings.Contains(string(text), `"RESOURCE_EXHAUSTED"`) {
			n++
		}
	}
	return n
}

// TestManyNodesAreOneChat runs two processes over one Redis, and kills one.
func TestManyNodesAreOneChat(t *testing.T) {
	args := "-addr=localhost:0 -refill=1 -capacity=10 -key=user -redis=redis://" + redistest.Start(t).Addr
	one, two := startNode(t, args), startNode(t, args)
	ann, bob := one.dial(t, "ann"), two.dial(t, "bob")
	ann.send(JoinRoom{"go"})
	receive(ann, func(RoomJoined) bool { return true })
	bob.send(JoinRoom{"go"})
	receive(ann, func(m UserJoined) bool { return m == UserJoined{"go", "bob"} })
	receive(bob, func(m UserJoined) bool { return m == UserJoined{"go", "ann"} })
	bob.send(Who{"go"})
	assert.Equal(t, []string{"ann", "bob"}, receive(bob, func(Users) bool { return true }).Users)

	ann.send(Say{"go", "hello over there"})
	assert.Equal(t, "ann", receive(bob, func(m Said) bool { return m.Text == "hello over there" }).User)
	bob.send(Say{"go", "hello back"})
	receive(ann, func(m Said) bool { return m.Text == "hello back" })

	eve, eveThere := one.dial(t, "eve"), two.dial(t, "eve")
	spent := eve.admitted(Who{"go"}, 30)
	assert.GreaterOrEqual(t, spent, 10)
	assert.LessOrEqual(t, eveThere.admitted(Who{"go"}, 30), 3, "a user's budget is one budget")

	two.kill()
	receive(ann, func(m UserLeft) bool { return m == UserLeft{"go", "bob"} })
	ann.send(Who{"go"})
	assert.Equal(t, []string{"ann"}, receive(ann, func(Users) bool { return true }).Users)
}
