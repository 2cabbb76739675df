package chat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
		os.Exit(Run(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the server logs rejected clients
	os.Exit(m.Run())
}

// A node is a chat server in its own process.
type node struct {
	url     string
	metrics string // URL
	cmd     *exec.Cmd
}

func startNode(t *testing.T, args string) *node {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	n := &node{cmd: exec.Command(self)}
	n.cmd.Env = append(os.Environ(), nodeArgs+"=-metrics-addr=127.0.0.1:0 "+args)
	stdout, err := n.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, n.cmd.Start())
	t.Cleanup(n.kill)
	_, err = fmt.Fscanf(bufio.NewReader(stdout), "chat: metrics on %s\nchat: open %s\n", &n.metrics, &n.url)
	require.NoError(t, err)
	return n
}

// fallbacks returns how many messages were limited by the node alone, because Redis did not answer in
// time.
func (n *node) fallbacks(t *testing.T) (count float64) {
	t.Helper()
	resp := get(t, n.metrics)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "penstock_limiter_fallbacks_total{") {
			_, err := fmt.Sscan(lines.Text()[strings.LastIndex(lines.Text(), " "):], &count)
			require.NoError(t, err)
		}
	}
	return count
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// A wsClient is connected to one node.
type wsClient struct {
	t  *testing.T
	ws *websocket.Conn
}

func (n *node) dial(t *testing.T, name string) *wsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, n.url+"/ws?access_token="+name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &wsClient{t, ws}
}

func (c *wsClient) send(m router.Message) {
	text, err := json.Marshal(map[string]any{"type": m.MessageType(), "payload": m})
	require.NoError(c.t, err)
	require.NoError(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, text))
}

// An envelope is a received message.
type envelope struct {
	Type    string
	Payload json.RawMessage
}

func (c *wsClient) next() (e envelope) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	_, text, err := c.ws.Read(ctx)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(text, &e))
	return e
}

// receive skips messages until one of type M matches.
func receive[M router.Message](c *wsClient, matches func(M) bool) M {
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
func (c *wsClient) countAdmitted(m router.Message, count int) (n int) {
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

// joinBoth starts two nodes, with ann on the first and bob on the second, who join a room.
func joinBoth(t *testing.T) (one, two *node, ann, bob *wsClient) {
	t.Helper()
	args := "-addr=localhost:0 -refill=1 -capacity=10 -key=user -redis=redis://" + redistest.Start(t).Addr
	one, two = startNode(t, args), startNode(t, args)
	ann, bob = one.dial(t, "ann"), two.dial(t, "bob")
	ann.send(JoinRoom{Room: "go"})
	receive(ann, func(RoomJoined) bool { return true })
	bob.send(JoinRoom{Room: "go"})
	receive(ann, func(m UserJoined) bool { return m == UserJoined{"go", "bob"} })
	receive(bob, func(m UserJoined) bool { return m == UserJoined{"go", "ann"} })
	bob.send(Who{"go"})
	assert.Equal(t, []string{"ann", "bob"}, receive(bob, func(Users) bool { return true }).Users)
	return one, two, ann, bob
}

func (c *wsClient) requireBobLeaves() {
	c.t.Helper()
	receive(c, func(m UserLeft) bool { return m == UserLeft{"go", "bob"} })
	c.send(Who{"go"})
	assert.Equal(c.t, []string{"ann"}, receive(c, func(Users) bool { return true }).Users)
}

func TestNodes_ShareRoomsPresenceAndLimits(t *testing.T) {
	one, two, ann, bob := joinBoth(t)

	ann.send(Say{Room: "go", Text: "hello from node one"})
	assert.Equal(t, "ann", receive(bob, func(m Said) bool { return m.Text == "hello from node one" }).User)
	bob.send(Say{Room: "go", Text: "hello from node two"})
	receive(ann, func(m Said) bool { return m.Text == "hello from node two" })

	requireSharedBucket(t, one, two)
	require.NoError(t, bob.ws.CloseNow())
	ann.requireBobLeaves()
}

// requireSharedBucket checks that both nodes take the tokens of a user from one bucket. It tries again
// with another user if a node could not ask Redis in time.
func requireSharedBucket(t *testing.T, one, two *node) {
	t.Helper()
	for attempt := range 20 {
		name, alone := fmt.Sprint("eve", attempt), one.fallbacks(t)+two.fallbacks(t)
		eve, eveOnTwo := one.dial(t, name), two.dial(t, name)
		start := time.Now()
		first, second := eve.countAdmitted(Who{"go"}, 30), eveOnTwo.countAdmitted(Who{"go"}, 30)
		if one.fallbacks(t)+two.fallbacks(t) > alone {
			continue
		}
		assert.GreaterOrEqual(t, first, 10)
		assert.LessOrEqual(t, first+second, 11+int(time.Since(start).Seconds()), "a token returns after a second")
		return
	}
	t.Fatal("Redis never answered in time")
}
