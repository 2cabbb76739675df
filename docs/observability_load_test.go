package docs_test

import (
	"bufio"
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func buildChat(t *testing.T) string {
	program := filepath.Join(t.TempDir(), "chat")
	out, err := exec.Command("go", "build", "-o", program, "../examples/chat").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// A chat is a process that runs the example.
type chat struct{ url, metrics string }

func startChat(t *testing.T, program string, flags ...string) chat {
	// Two hosts: with the same address and port 0, both flags would be equal.
	cmd := exec.Command(program, append(flags, "-addr=127.0.0.1:0", "-metrics-addr=localhost:0")...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(stdout)
	line := func(prefix string) string {
		require.True(t, lines.Scan())
		rest, ok := strings.CutPrefix(lines.Text(), prefix)
		require.True(t, ok, lines.Text())
		return rest
	}
	return chat{metrics: line("chat: metrics on "), url: line("chat: open ")}
}

// target returns the host:port that Prometheus scrapes.
func (c chat) target() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.metrics, "http://"), "/metrics")
}

func (c chat) dial(ctx context.Context, token, origin string) (*websocket.Conn, error) {
	ws, _, err := websocket.Dial(ctx, c.url+"/ws?access_token="+token, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
	return ws, err
}

// send opens a connection and sends the messages in turn, one per interval, until ctx or the
// connection ends. It discards what it receives.
func (c chat) send(ctx context.Context, token string, interval time.Duration, messages ...string) {
	ws, err := c.dial(ctx, token, c.url)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for _, _, err := ws.Read(ctx); err == nil; _, _, err = ws.Read(ctx) {
			continue
		}
	}()
	for n := 0; ; n++ {
		if ws.Write(ctx, websocket.MessageText, []byte(messages[n%len(messages)])) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// load runs clients against all nodes until the test ends: one talks, one floods, one sends
// invalid messages, some fail the handshake, and one connects and disconnects in a loop.
func load(t *testing.T, nodes ...chat) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var clients sync.WaitGroup
	t.Cleanup(func() { cancel(); clients.Wait() })
	repeat := func(interval time.Duration, act func()) {
		clients.Go(func() {
			for ctx.Err() == nil {
				act()
				time.Sleep(interval) // the rate of the load
			}
		})
	}
	for i, node := range nodes {
		name := string(rune('a' + i))
		repeat(time.Second, func() {
			node.send(ctx, name, 20*time.Millisecond,
				`{"type":"JOIN_ROOM","meta":{"correlationId":"1"},"payload":{"room":"go"}}`, `{"type":"SAY","payload":{"room":"go","text":"hello"}}`)
		})
		repeat(time.Second, func() {
			node.send(ctx, "flood", time.Millisecond, `{"type":"WHO","meta":{"correlationId":"1"},"payload":{"room":"go"}}`)
		})
		repeat(time.Second, func() {
			node.send(ctx, "scan", 20*time.Millisecond, `{"type":"DROP_TABLES"}`, `{"type":"SAY","payload":7}`, `{"type":"SAY","payload":{"room":"elsewhere","text":"hello"}}`, `garbage`)
		})
		for _, visitor := range []struct{ token, origin string }{{"no:token:this", node.url}, {"eve", "https://evil.example"}, {"guest", node.url}} {
			repeat(50*time.Millisecond, func() {
				if ws, err := node.dial(ctx, visitor.token, visitor.origin); err == nil {
					_ = ws.Close(websocket.StatusNormalClosure, "")
				}
			})
		}
	}
}
