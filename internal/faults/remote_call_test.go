//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

const callNodeEnv = "PENSTOCK_FAULTS_CALL_NODE"

// TestCallNode is the main function of a process whose clients are called. It prints its URL and
// the ID of each connection.
func TestCallNode(t *testing.T) {
	text := os.Getenv(callNodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var spec nodeSpec
	require.NoError(t, json.Unmarshal([]byte(text), &spec))
	r := router.New(&router.Options{
		Broker: redis.NewBroker(spec.client()),
		OnOpen: func(_ context.Context, c *router.Conn) error {
			fmt.Println("conn", c.ID())
			return nil
		},
	})
	server := httptest.NewServer(r)
	fmt.Println("url", server.URL)
	commands := make(chan string)
	go readCommands(commands)
	for range commands { // until the end of standard input
		continue
	}
}

// A callNode is a process with one client.
type callNode struct {
	*process

	connID string
	silent atomic.Bool   // the client does not answer
	called chan struct{} // the client has received a call
}

// startCallNode starts a process and connects a client, which answers nothing.
func startCallNode(t *testing.T, spec *nodeSpec) *callNode {
	t.Helper()
	lines := make(chan string, 100)
	n := &callNode{called: make(chan struct{}, 1000), process: startTest(t, "TestCallNode", callNodeEnv, "call node", spec, func(line string) { lines <- line })}
	next := func(prefix string) string {
		for {
			select {
			case line := <-lines:
				if value, ok := strings.CutPrefix(line, prefix+" "); ok {
					return value
				}
			case <-time.After(30 * time.Second):
				require.FailNow(t, "no line with "+prefix)
			}
		}
	}
	ws, _, err := websocket.Dial(t.Context(), next("url"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	n.connID = next("conn")
	go n.answer(t.Context(), ws)
	return n
}

// answer is the client: it answers calls until the connection ends.
func (n *callNode) answer(ctx context.Context, ws *websocket.Conn) {
	for {
		var call struct {
			Meta json.RawMessage `json:"meta"`
		}
		if wsjson.Read(ctx, ws, &call) != nil {
			return
		}
		if !n.silent.Load() {
			_ = wsjson.Write(ctx, ws, map[string]any{"type": "TOLD", "meta": call.Meta})
		}
		n.called <- struct{}{}
	}
}

// ask is a call to clients.
type ask struct{}

func (ask) MessageType() string { return "ASK" }

// told is the reply to ask.
type told struct{}

func (told) MessageType() string { return "TOLD" }

func TestRemoteCall_ReachesAnotherProcess(t *testing.T) {
	server := redistest.Start(t)
	r := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t))})
	t.Cleanup(func() { _ = r.Shutdown(t.Context()) })
	n := startCallNode(t, &nodeSpec{Kind: single, Addrs: []string{server.Addr}})
	require.Eventually(t, func() bool {
		_, err := router.CallConn[told](t.Context(), r, n.connID, ask{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// TestRemoteCall_ProcessStopsOrDies calls the client of a process that is stopped for longer than
// the other nodes wait, continues, and is killed.
func TestRemoteCall_ProcessStopsOrDies(t *testing.T) {
	testscale.FullOnly(t, "TestRemoteCall_ReachesAnotherProcess")
	server := redistest.Start(t)
	r := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t))})
	t.Cleanup(func() { _ = r.Shutdown(t.Context()) })
	n := startCallNode(t, &nodeSpec{Kind: single, Addrs: []string{server.Addr}})
	call := func() error {
		_, err := router.CallConn[told](t.Context(), r, n.connID, ask{})
		return err
	}
	eventually := func(code errors.Code) {
		require.Eventually(t, func() bool { return errors.CodeOf(call()) == code }, time.Minute, 10*time.Millisecond)
	}
	// during calls the client, which does not answer, does something to the process when the client
	// has the call, and waits for the end of the call.
	during := func(do func()) {
		n.silent.Store(true)
		for len(n.called) > 0 {
			<-n.called
		}
		done := make(chan error, 1)
		go func() { done <- call() }()
		<-n.called
		do()
		start := time.Now()
		err := <-done
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err), "%v", err)
		assert.Less(t, time.Since(start), 15*time.Second, "not only after Timeouts.Call")
		n.silent.Store(false)
	}
	eventually("") // when the nodes know each other
	during(func() { n.signal(t, syscall.SIGSTOP) })
	eventually(errors.NotFound)
	n.signal(t, syscall.SIGCONT)
	eventually("")
	during(func() { n.kill(t) })
	eventually(errors.NotFound)
}
