package tutorial_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/testscale"
)

type (
	openRoom struct {
		Room string `json:"room"`
	}
	roomOpened struct {
		Messages []said          `json:"messages"`
		Position client.Position `json:"position"`
	}
	say struct {
		Room string `json:"room"`
		Text string `json:"text"`
	}
	said struct {
		User string `json:"user"`
		Text string `json:"text"`
	}
)

func (openRoom) MessageType() string   { return "OPEN_ROOM" }
func (roomOpened) MessageType() string { return "ROOM_OPENED" }
func (say) MessageType() string        { return "SAY" }
func (said) MessageType() string       { return "SAID" }

var startEnvironment = []string{"JWT_SECRET=0123456789abcdef0123456789abcdef"}

// newStart returns the project of the start page, built and tested as a reader does.
func newStart(t *testing.T) *project {
	p := emptyProject(t, "chat")
	p.writeBlocks(filepath.Join(root, "docs/guides/getting-started.md"))
	modules, err := os.ReadFile("../go.mod") // its version is in the cache
	require.NoError(t, err)
	version := regexp.MustCompile(`github\.com/golang-jwt/jwt/v5 \S+`).Find(modules)
	p.runGo("mod", "edit", "-require="+strings.ReplaceAll(string(version), " ", "@"))
	p.runGo("mod", "tidy")
	p.runGo("test", ".", "-contract.update")
	p.check()
	return p
}

// tokenOf returns a token of the start page's server.
func tokenOf(t *testing.T, n *node, user string) string {
	answer, err := http.PostForm("http://"+n.addr+"/token", url.Values{"user": {user}})
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	token, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(token)
}

// TestStart_ServerAuthenticatesLimitsAndRecovers builds the server of the start page, and is its client.
func TestStart_ServerAuthenticatesLimitsAndRecovers(t *testing.T) {
	n := newStart(t).start(startEnvironment)
	connect := func(token string) *client.Client {
		c := client.New("ws://"+n.addr+"/ws", &client.Options{
			Token: func(context.Context, bool) (string, error) { return token, nil },
		})
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		return c
	}
	_, err := client.Call[roomOpened](t.Context(), connect("forged"), openRoom{"go"})
	assert.Equal(t, errors.Unauthenticated, errors.CodeOf(err))

	ann := connect(tokenOf(t, n, "ann"))
	empty, err := client.Call[roomOpened](t.Context(), ann, openRoom{"go"})
	require.NoError(t, err)
	require.NoError(t, client.Send(t.Context(), ann, say{"go", "hi"}))

	received := make(chan said, 1)
	_, err = connect(tokenOf(t, n, "bob")).Subscribe(t.Context(), "room/go", &client.SubscribeOptions{
		Since:    empty.Position,
		Handlers: []client.Handler{client.HandlerFor(func(m said, _ *client.Received) { received <- m })},
	})
	require.NoError(t, err)
	select {
	case m := <-received:
		assert.Equal(t, said{"ann", "hi"}, m)
	case <-time.After(timeout):
		assert.Fail(t, "the message before the subscription is missing")
	}
	limited := false
	for range 100 {
		_, err := client.Call[roomOpened](t.Context(), ann, openRoom{"go"})
		limited = limited || errors.CodeOf(err) == errors.ResourceExhausted
	}
	assert.True(t, limited)
}

// TestStart_Page builds the page of the start page, checks its types, and operates it in Chromium.
func TestStart_Page(t *testing.T) {
	testscale.FullOnly(t, "TestStart_ServerAuthenticatesLimitsAndRecovers")
	browser := browsertest.Start(t)
	p := newStart(t)
	clientDir := filepath.Join(t.TempDir(), "clients/ts")
	nodetest.CopySources(t, filepath.Join(root, "clients/ts"), clientDir)
	nodetest.Install(t, clientDir)
	run := func(dir, name string, arguments ...string) {
		command := exec.Command(nodetest.Program(t, name), arguments...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run(clientDir, "npm", "run", "build")
	require.NoError(t, os.Mkdir(filepath.Join(p.dir, "node_modules"), 0o700))
	require.NoError(t, os.Symlink(clientDir, filepath.Join(p.dir, "node_modules/penstock-client")))
	npx := []string{"--prefix", clientDir, "--no-install"}
	run(p.dir, "npx", append(npx, "tsc", "--ignoreConfig", "--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "page/page.ts")...)
	run(p.dir, "npx", append(npx, "esbuild", "page/page.ts", "--bundle", "--format=esm", "--target=es2022", "--outfile=page/page.js")...)

	n := p.start(startEnvironment)
	const shown = `[...document.querySelectorAll("li")].map((li) => li.textContent)`
	ann, bob := open(browser, t, n.addr, "?user=ann"), open(browser, t, n.addr, "?user=bob")
	ann.WaitFor(`document.querySelector("form").onsubmit !== null`)
	bob.WaitFor(`document.querySelector("form").onsubmit !== null`)
	ann.submit("input", "hi")
	bob.WaitEqual(shown, []string{"ann: hi"})
	ann.WaitEqual(shown, []string{"ann: hi"})
	carol := open(browser, t, n.addr, "?user=carol")
	carol.WaitEqual(shown, []string{"ann: hi"})
}
