package observability_test

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
	out, err := exec.Command("go", "build", "-o", program, "../../examples/chat").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// A chat is the example in a process of its own.
type chat struct{ url, metrics string }

func startChat(t *testing.T, program string, flags ...string) chat {
	// The addresses differ, lest they be one.
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

// target is what Prometheus calls the chat.
func (c chat) target() string {
	return strings.TrimSuffix(strings.TrimPrefix(c.metrics, "http://"), "/metrics")
}

func (c chat) dial(ctx context.Context, token, origin string) (*websocket.Conn, error) {
	ws, _, err := websocket.Dial(ctx, c.url+"/ws?access_token="+token, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
	return ws, err
}

// says sends a message every so often, and reads what comes, for as long as it can.
func (c chat) says(ctx context.Context, token string, pause time.Duration, messages ...string) {
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
		case <-time.After(pause):
		}
	}
}

// load has people talk on all nodes; one floods, one sends what nobody understands, some
// come and go, and some are not let in. It ends with the test.
func load(t *testing.T, nodes ...chat) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var actors sync.WaitGroup
	t.Cleanup(func() { cancel(); actors.Wait() })
	again := func(pause time.Duration, act func()) {
		actors.Go(func() {
			for ctx.Err() == nil {
				act()
				time.Sleep(pause) // the rate of the load
			}
		})
	}
	for i, node := range nodes {
		name := string(rune('a' + i))
		again(time.Second, func() {
			node.says(ctx, name, 20*time.Millisecond,
				`{"type":"JOIN_ROOM","meta":{"correlationId":"1"},"payload":{"room":"go"}}`, `{"type":"SAY","payload":{"room":"go","text":"hello"}}`)
		})
		again(time.Second, func() {
			node.says(ctx, "flood", time.Millisecond, `{"type":"WHO","meta":{"correlationId":"1"},"payload":{"room":"go"}}`)
		})
		again(time.Second, func() {
			node.says(ctx, "scan", 20*time.Millisecond, `{"type":"DROP_TABLES"}`, `{"type":"SAY","payload":7}`, `{"type":"SAY","payload":{"room":"elsewhere","text":"hello"}}`, `garbage`)
		})
		for _, intruder := range []struct{ token, origin string }{{"no:token:this", node.url}, {"eve", "https://evil.example"}, {"guest", node.url}} {
			again(50*time.Millisecond, func() {
				if ws, err := node.dial(ctx, intruder.token, intruder.origin); err == nil {
					_ = ws.Close(websocket.StatusNormalClosure, "")
				}
			})
		}
	}
}
