package production_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/penstock-go/penstock/internal/freeport"
)

const folder = "../../../examples/production"

// A composeFile has what the tests read of compose.yaml.
type composeFile struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]any
	}
}

func readCompose(t *testing.T) (c composeFile) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "compose.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &c))
	return c
}

// A stack runs the services of compose.yaml as processes. Their addresses replace the names of the containers.
type stack struct {
	t       *testing.T
	dir     string
	compose composeFile
	program string // the server of the example
	addrs   map[string]string
}

// A process is a running service.
type process struct {
	cmd    *exec.Cmd
	output *output
	exited chan struct{}
}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir(), compose: readCompose(t), addrs: map[string]string{}}
	s.program = filepath.Join(s.dir, "server")
	build(t, folder, s.program)
	for _, name := range []string{"redis:6379", "node-1:8080", "node-1:9090", "node-2:8080", "node-2:9090", "haproxy:8080", "collector:4318", "prometheus:9090"} {
		s.addrs[name] = freeport.Address()
	}
	return s
}

func build(t *testing.T, folder, program string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-C", folder, "-o", program, ".")
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build -C %s: %v\n%s", folder, err, text)
	}
}

func need(t *testing.T, program string) string {
	t.Helper()
	for _, name := range []string{program, "/usr/sbin/" + program} { // which PATH may not contain
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: CI=true requires it", program)
	}
	t.Skipf("%s is not installed; install it to run this test", program)
	return ""
}

// config writes a file of the folder with local addresses, and other pairs of strings that must occur, and returns its path.
func (s *stack) config(name string, pairs ...string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(s.t, err)
	content := s.local(string(text))
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(s.t, content, pairs[i])
		content = strings.ReplaceAll(content, pairs[i], pairs[i+1])
	}
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// local replaces the names of containers with addresses.
func (s *stack) local(text string) string {
	for name, addr := range s.addrs {
		text = strings.ReplaceAll(text, name, addr)
	}
	return text
}

// command returns the command of a service, with local addresses and other arguments appended.
func (s *stack) command(service string, pairs ...string) (args []string) {
	s.t.Helper()
	args = slices.Clone(s.compose.Services[service].Command)
	require.NotEmpty(s.t, args, service)
	replacer := strings.NewReplacer(pairs...)
	for i := range args {
		args[i] = s.local(replacer.Replace(args[i]))
	}
	return args
}

// start starts a service, and waits until it accepts connections at addr.
func (s *stack) start(service, addr, program string, args ...string) *process {
	s.t.Helper()
	p := &process{cmd: exec.Command(program, args...), output: new(output), exited: make(chan struct{})}
	p.cmd.Dir = s.dir
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = os.Environ()
	for name, value := range s.compose.Services[service].Environment {
		p.cmd.Env = append(p.cmd.Env, name+"="+s.local(fmt.Sprint(value)))
	}
	require.NoError(s.t, p.cmd.Start())
	go func() { defer close(p.exited); _ = p.cmd.Wait() }()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if s.t.Failed() {
			s.t.Logf("%s: %s", service, p.output)
		}
	})
	s.await(addr, p)
	return p
}

func (s *stack) await(addr string, p *process) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		select {
		case <-p.exited:
			s.t.Fatalf("%s has ended: %s", p.cmd.Path, p.output)
		default:
		}
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond, "%s does not accept connections", p.cmd.Path)
}

// startRedis starts Redis without its files.
func (s *stack) startRedis() *process {
	addr := s.addrs["redis:6379"]
	_, port, err := net.SplitHostPort(addr)
	require.NoError(s.t, err)
	args := s.command("redis")
	return s.start("redis", addr, need(s.t, args[0]), append(args[1:], "--port", port, "--dir", s.dir)...)
}

// startNode starts a node of the example as compose.yaml does.
func (s *stack) startNode(name string) *process {
	limits, err := filepath.Abs(filepath.Join(folder, "limits", "limits.txt"))
	require.NoError(s.t, err)
	args := s.command(name, "/etc/counter/limits.txt", limits, "172.30.0.10/32", "127.0.0.1/32")
	args = append(args, "-addr", s.addrs[name+":8080"], "-metrics-addr", s.addrs[name+":9090"])
	return s.start(name, s.addrs[name+":8080"], s.program, args...)
}

// startHAProxy waits until it has checked the nodes. The tests need fewer descriptors than 50,000 clients.
func (s *stack) startHAProxy() {
	program := need(s.t, "haproxy")
	addr := s.addrs["haproxy:8080"]
	path := s.config("haproxy.cfg", "bind :8080", "bind "+addr, "maxconn 50000", "maxconn 1000")
	s.start("haproxy", addr, program, "-db", "-f", path)
	s.eventually("haproxy has nodes", func() bool { return s.status("http://"+addr+"/readyz") == http.StatusOK })
}

func (s *stack) eventually(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, time.Minute, 20*time.Millisecond, what)
}

// status returns the status of a GET request, or 0 if there is no answer.
func (s *stack) status(url string) int {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// exitCode waits until the process has ended.
func (p *process) exitCode(ctx context.Context) int {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		return -1
	}
}

// An output is what a process prints. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
