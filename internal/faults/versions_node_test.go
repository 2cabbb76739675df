//go:build unix

package faults_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
)

// program is the folder of the node's program.
const program = "internal/versions/node"

// buildNode builds the program of a node in a folder with the sources of a version. With -trimpath,
// the build cache serves those of earlier folders.
func buildNode(t *testing.T, root string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "node")
	command(t, "go", "build", "-C", root, "-trimpath", "-o", binary, "./"+program)
	return binary
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
}

// checkOut writes the files of a revision into a new folder.
func checkOut(t *testing.T, root, revision string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	archive := filepath.Join(t.TempDir(), "archive.tar")
	command(t, "git", "-C", root, "archive", "-o", archive, revision)
	command(t, "tar", "-C", dir, "-xf", archive)
	return dir
}

func startNode(t *testing.T, binary, redis string) *process {
	t.Helper()
	return startProcess(t, binary, exec.Command(binary, redis))
}

// A line is the way from a client to its node, which a test changes.
type line struct {
	mu   sync.Mutex // guards what follows
	addr string
	conn net.Conn
}

// move connects the client to another node, or to none if addr is "".
func (l *line) move(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = addr
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// next connects the client to another node when it has lost its connection.
func (l *line) next(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = addr
}

func (l *line) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	l.mu.Lock()
	addr := l.addr
	l.mu.Unlock()
	if addr == "" {
		return nil, errors.New("no node")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return conn, err
}

// newClient returns a client of a user, which connects to a node, and its line.
func newClient(addr, user string, opts client.Options) (*client.Client, *line) {
	l := &line{addr: addr}
	opts.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: l.dial}}
	opts.Logger = slog.New(slog.DiscardHandler) // lost connections are part of the test
	opts.Backoff = client.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	return client.New("ws://node.example/"+user, &opts), l
}

func connect(t *testing.T, addr, user string, opts client.Options) (*client.Client, *line) {
	t.Helper()
	c, l := newClient(addr, user, opts)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	require.NoError(t, c.Connect(within(t)))
	return c, l
}

// within returns a context that bounds what a test waits for, also on a busy machine.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// versionsReceive returns the next value of a channel.
func versionsReceive[T any](t *testing.T, values <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-values:
	case <-within(t).Done():
		require.FailNow(t, "nothing arrives")
	}
	return v
}
