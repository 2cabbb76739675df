package tutorial_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestSteps_TwoNodesBehindNginx restarts a node of the last step. The container is not built.
func TestSteps_TwoNodesBehindNginx(t *testing.T) {
	testscale.FullOnly(t, "TestSteps_FirstOneRuns")
	browsertest.Program(t)
	if _, err := exec.LookPath("nginx"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no nginx in PATH; CI=true requires it")
		}
		t.Skip("no nginx in PATH; install it to test the last step of the tutorial")
	}
	server := redistest.Start(t)
	p := newProject(t, steps)
	p.runGo("build", "-o", "groceries", ".")
	secret := []string{"SECRET=of the test"}
	flags := []string{"-redis", server.Addr, "-proxy", "127.0.0.1/32"}
	nodes := []*node{p.start(secret, flags...), p.start(secret, flags...)}
	proxy := p.startNginx(nodes[0].addr, nodes[1].addr)

	browser := browsertest.Start(t)
	ann, bob := open(browser, t, proxy, ""), open(browser, t, proxy, "")
	for _, page := range []*page{ann, bob} { // connections are closed during the test
		page.Expect("network error: WebSocket connection to")
		page.Expect("javascript error: WebSocket is already in CLOSING") // a message while a server closes
	}
	ann.logIn("ann")
	bob.logIn("bob")
	ann.submit("#text", "milk")
	bob.WaitEqual(shownItems, []string{"milk (ann)"})
	ann.WaitEqual(shownMembers, "ann, bob")

	lines := nodes[0].shutDown()
	assert.Contains(t, strings.Join(lines, "\n"), "shutting down")
	assert.NotContains(t, strings.Join(lines, "\n"), "did not close in time")
	bob.submit("#text", "bread")
	ann.WaitEqual(shownItems, []string{"milk (ann)", "bread (bob)"})
	ann.WaitEqual(shownMembers, "ann, bob")
	ann.submit("#text", "eggs")
	bob.WaitEqual(shownItems, []string{"milk (ann)", "bread (bob)", "eggs (ann)"})
}

// startNginx starts nginx with the configuration of the tutorial, on other ports.
func (p *project) startNginx(node1, node2 string) (addr string) {
	p.t.Helper()
	path := filepath.Join(p.dir, "nginx.conf")
	text, err := os.ReadFile(path)
	require.NoError(p.t, err)
	addr = freeport.Address()
	for from, to := range map[string]string{"server 127.0.0.1:8081": "server " + node1, "server 127.0.0.1:8082": "server " + node2, "listen 127.0.0.1:8080": "listen " + addr} {
		require.Equal(p.t, 1, strings.Count(string(text), from))
		text = []byte(strings.Replace(string(text), from, to, 1))
	}
	p.write("nginx.conf", string(text))
	require.NoError(p.t, os.Mkdir(filepath.Join(p.dir, "temp"), 0o700))
	require.NoError(p.t, os.Chmod(p.dir, 0o755)) //nolint:gosec // workers of nginx have another user
	command := exec.Command("nginx", "-e", "stderr", "-p", p.dir, "-c", "nginx.conf")
	command.Stderr = p.t.Output()
	require.NoError(p.t, command.Start())
	p.t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	waitUntilServed(p.t, addr)
	return addr
}
