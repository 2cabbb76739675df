package tutorial_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/testscale"
)

const (
	root  = "../../.."
	steps = 9
)

// timeout is how long a test waits for an expected event.
const timeout = 30 * time.Second

// fileBlock is a block of code whose info string has the name of a file, below a line with that name.
var (
	fileBlock = regexp.MustCompile("(?ms)^\\*\\*`([^`\n]+)`\\*\\*\n\n```\\w+ (\\S+)\n(.*?)^```$")
	named     = regexp.MustCompile("(?m)^```\\w+ \\S+$")
)

// modulesChange is where a step changes go.mod; other steps must not need that.
var modulesChange = regexp.MustCompile(`go mod tidy|(?m)^go get github.com/redis`)

// A project is the folder of a reader who has followed the tutorial.
type project struct {
	t    *testing.T
	dir  string
	step int
}

// newProject returns a project as it is after a step. Its module uses the repository.
func newProject(t *testing.T, step int) *project {
	p := emptyProject(t, "groceries")
	content, err := os.ReadFile(filepath.Join(root, "examples/chat/page/penstock-client.js"))
	require.NoError(t, err)
	p.write("penstock-client.js", string(content))
	for p.step < step {
		p.follow()
	}
	return p
}

// emptyProject returns a project with a module that uses the repository.
func emptyProject(t *testing.T, module string) *project {
	p := &project{t: t, dir: t.TempDir()}
	path, err := filepath.Abs(root)
	require.NoError(t, err)
	p.write("go.mod", "module "+module+"\n\ngo 1.26\n\nrequire github.com/penstock-go/penstock v0.0.0\n\nreplace github.com/penstock-go/penstock => "+path+"\n")
	return p
}

func (p *project) write(name, content string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o700))
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600))
}

// follow writes the files of the next step.
func (p *project) follow() {
	p.t.Helper()
	p.step++
	pages, err := filepath.Glob(fmt.Sprintf("%s/docs/tutorial/%d-*.md", root, p.step))
	require.NoError(p.t, err)
	require.Len(p.t, pages, 1)
	if text := p.writeBlocks(pages[0]); modulesChange.Match(text) {
		p.runGo("mod", "tidy") // also for "go get", which would get other versions than the router has
	}
}

// writeBlocks writes the files of a page, and returns the text of the page.
func (p *project) writeBlocks(page string) []byte {
	p.t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(p.t, err)
	blocks := fileBlock.FindAllSubmatch(text, -1)
	require.NotEmpty(p.t, blocks, page)
	require.Len(p.t, named.FindAll(text, -1), len(blocks), "%s: a block with the name of a file follows a line with the same name", page)
	for _, block := range blocks {
		require.Equal(p.t, string(block[1]), string(block[2]), page)
		p.write(string(block[2]), string(block[3]))
	}
	return text
}

func (p *project) runGo(arguments ...string) {
	p.t.Helper()
	command := exec.Command("go", arguments...)
	command.Dir = p.dir
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := command.CombinedOutput()
	require.NoError(p.t, err, "step %d: go %s\n%s", p.step, strings.Join(arguments, " "), out)
}

// check vets and builds the program, and runs its tests.
func (p *project) check() {
	p.t.Helper()
	p.runGo("vet", ".")
	p.runGo("build", "-o", "groceries", ".")
	if tests, _ := filepath.Glob(filepath.Join(p.dir, "*_test.go")); len(tests) > 0 {
		p.runGo("test", "-count=1", ".")
	}
	unformatted, err := exec.Command("gofmt", "-l", p.dir).CombinedOutput()
	require.NoError(p.t, err)
	assert.Empty(p.t, string(unformatted), "step %d", p.step)
}

// A node is a running program of the tutorial.
type node struct {
	addr    string
	t       *testing.T
	command *exec.Cmd
	logged  chan []string // of the process, after it has ended
}

// start starts the built program, with the environment variables and flags.
func (p *project) start(environment []string, flags ...string) *node {
	p.t.Helper()
	n := &node{addr: freeport.Address(), t: p.t, logged: make(chan []string, 1)}
	n.command = exec.Command(filepath.Join(p.dir, "groceries"), append([]string{"-addr", n.addr}, flags...)...)
	n.command.Dir = p.dir
	n.command.Env = append(os.Environ(), environment...)
	stderr, err := n.command.StderrPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, n.command.Start())
	go func() {
		var lines []string
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			lines = append(lines, scanner.Text())
		}
		n.logged <- lines
	}()
	p.t.Cleanup(n.kill)
	waitUntilServed(p.t, n.addr)
	return n
}

func (n *node) kill() {
	if n.command.ProcessState == nil {
		_ = n.command.Process.Kill()
		_ = n.command.Wait()
	}
}

// shutDown sends SIGTERM, and returns what the program has logged after it has ended.
func (n *node) shutDown() []string {
	n.t.Helper()
	require.NoError(n.t, n.command.Process.Signal(syscall.SIGTERM))
	lines := <-n.logged
	require.NoError(n.t, n.command.Wait(), "%v", lines)
	return lines
}

func waitUntilServed(t *testing.T, addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + addr + "/")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, timeout, 20*time.Millisecond, "the server at %s does not answer", addr)
}

// TestSteps_AreBuilt vets and builds the program of each step, as a reader does.
func TestSteps_AreBuilt(t *testing.T) {
	testscale.FullOnly(t, "TestSteps_FirstOneRuns")
	p := newProject(t, 0)
	for range steps {
		p.follow()
		p.check()
	}
	entries, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	sort.Strings(names)
	assert.Equal(t, []string{
		"Dockerfile", "app.js", "auth.go", "go.mod", "go.sum", "groceries", "index.html", "list.go", "list_test.go", "main.go", "messages.go",
		"nginx.conf", "penstock-client.js", "router.go",
	}, names)
}
