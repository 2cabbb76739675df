package clienttest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
	"github.com/penstock-go/penstock/internal/interop/pythontest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// pythonScale and pythonHTTPScale are how much faster the clock of the Python client runs.
const (
	pythonScale     = 5
	pythonHTTPScale = 3
)

const pythonDir = "../../../clients/python"

// startPython starts the driver of the Python client. With a mode, its client connects over HTTP.
func startPython(t *testing.T, scale int, mode ...string) *conformance.Process {
	t.Helper()
	command := pythontest.Find(t).Command(t.Context(), append([]string{"tests/driver.py", strconv.Itoa(scale)}, mode...)...)
	command.Stderr = os.Stderr
	d, err := conformance.StartProcess(command, 5*time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { d.Stop() })
	return d
}

func TestScenarios_PythonClient(t *testing.T) {
	runPythonScenarios(t, testscale.Sample(scenariosOf("Python", webSocket), 15), false)
}

func TestScenarios_PythonClientCBOR(t *testing.T) {
	runPythonScenarios(t, testscale.SoakSample(scenariosOf("Python", withCBOR), testscale.Pick(8, 10)), true)
}

func TestScenarios_PythonClientHTTPStream(t *testing.T) {
	runPythonScenarios(t, testscale.SoakSample(scenariosOf("Python", httpStream), testscale.Pick(3, 6)), false, "stream")
}

func TestScenarios_PythonClientHTTPPoll(t *testing.T) {
	runPythonScenarios(t, testscale.SoakSample(scenariosOf("Python", httpPoll), testscale.Pick(3, 6)), false, "poll")
}

func runPythonScenarios(t *testing.T, scenarios []*conformance.Scenario, cbor bool, mode ...string) {
	pythontest.Find(t)
	scale := pythonScale
	if len(mode) > 0 {
		scale = pythonHTTPScale
	}
	for _, s := range scenarios {
		t.Run(title(s), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			run(t, s, startPython(t, scale, mode...), conformance.Config{
				Listener: listener, URL: "ws://" + listener.Addr().String() + "/", CBOR: cbor, Scale: scale, Limit: 30 * time.Second,
			})
		})
	}
}

func TestFaults_PythonClient(t *testing.T) {
	pythontest.Find(t)
	for _, f := range testscale.Sample(faultCases, 1) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			runFaults(t, startPython(t, 10), 10, f)
		})
	}
}

// The command runs the scenarios as its users do.
func TestConformanceCommand_ReportAsJSON(t *testing.T) {
	program := filepath.Join(t.TempDir(), "penstock")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../cmd/penstock", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	python := pythontest.Find(t).Command(t.Context(), "tests/driver.py")
	command := exec.CommandContext(t.Context(), program, append([]string{"conformance", "-json", "-run", "^(1|28|48) ", "--"}, python.Args...)...)
	command.Dir, command.Env, command.Stderr = python.Dir, python.Env, os.Stderr
	stdout, err := command.Output()
	require.NoError(t, err, "%s", stdout)
	var report struct {
		Driver    struct{ Client string }
		Scenarios []struct{ Outcome string }
	}
	require.NoError(t, json.Unmarshal(stdout, &report))
	assert.Equal(t, "Python", report.Driver.Client)
	outcomes := map[string]int{}
	for _, s := range report.Scenarios {
		outcomes[s.Outcome]++
	}
	assert.Equal(t, 3, outcomes["passed"])
	assert.Zero(t, outcomes["failed"])
	assert.Greater(t, outcomes["skipped"], 100)
}

// The driver shows how little a driver needs.
func TestPythonDriver_IsShort(t *testing.T) {
	text, err := os.ReadFile(pythonDir + "/tests/driver.py")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 200, "lines")
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

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := pythontest.Find(t).Command(ctx, "-c", text, "ws"+strings.TrimPrefix(server.URL, "http"))
	command.Stderr = os.Stderr
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
