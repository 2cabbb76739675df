package clienttest_test

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

const pythonDir = "../../../clients/python-driver"

// python returns the path of Python, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed; this test runs it")
	}
	return path
}

// The client in Python passes the levels that its driver claims.
func TestScenarios_PythonClient(t *testing.T) {
	start := func(t *testing.T) *conformance.Process {
		command := exec.CommandContext(t.Context(), python(t), filepath.Join(pythonDir, "driver.py"))
		command.Stderr, command.Env = os.Stderr, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		d, err := conformance.StartProcess(command, 5*time.Minute)
		require.NoError(t, err)
		t.Cleanup(func() { d.Stop() })
		return d
	}
	levels := start(t).Greeting.Levels
	require.Subset(t, levels, []string{"minimal", "calls", "streams", "topics"})
	claimed := slices.DeleteFunc(conformance.Scenarios(), func(s *conformance.Scenario) bool { return !slices.Contains(levels, s.Level) })
	for _, s := range testscale.Sample(claimed, 8) {
		t.Run(title(s), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			d := start(t)
			run(t, s, d, conformance.Config{Listener: listener, URL: "ws://" + listener.Addr().String() + "/", Scale: d.Greeting.Scale, Limit: 30 * time.Second})
		})
	}
}

// The program of docs/writing-a-client.md runs as printed, with a real server.
func TestMinimalClient_RunsAsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../../docs/writing-a-client.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, program)
	text := string(program[1])
	assert.LessOrEqual(t, len(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })), 40, "lines of code")

	r := router.New(&router.Options{Logger: slog.New(slog.DiscardHandler)})
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
	router.RPC(r, func(_ *router.Context, m ask) (answer, error) { return answer(m), nil })
	server := httptest.NewServer(r)
	defer server.Close()
	defer func() { _ = r.Shutdown(context.Background()) }()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, python(t), "-c", text, "ws"+strings.TrimPrefix(server.URL, "http"))
	command.Stderr, command.Env = os.Stderr, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+pythonDir)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	require.Equal(t, "answer 7", lines.Text())
	require.NoError(t, r.Publish("room/go", said{N: 3}))
	require.True(t, lines.Scan())
	require.Equal(t, "said 3", lines.Text())
	cancel()
	_ = command.Wait()
}
