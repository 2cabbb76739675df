package tutorial_test

import (
	"bytes"
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
	say struct {
		Text string `json:"text"`
	}
	said struct {
		User string `json:"user"`
		Text string `json:"text"`
	}
)

func (say) MessageType() string  { return "SAY" }
func (said) MessageType() string { return "SAID" }

var startEnvironment = []string{"JWT_SECRET=0123456789abcdef0123456789abcdef"}

// newStart returns the project of the start page after the section with this heading, built and tested as a reader does.
func newStart(t *testing.T, heading string) *project {
	p := emptyProject(t, "chat")
	pageClient, err := os.ReadFile(filepath.Join(root, "examples/chat/page/penstock-client.js"))
	require.NoError(t, err)
	p.write("page/penstock-client.js", string(pageClient))
	text, err := os.ReadFile(filepath.Join(root, "docs/guides/getting-started.md"))
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, heading)
	section, _, _ := strings.Cut(after, "\n## ")
	read := []byte(before + "\n" + section)
	blocks := fileBlock.FindAllSubmatch(read, -1)
	require.Len(t, named.FindAll(read, -1), len(blocks), "a block with the name of a file follows a line with the same name")
	for _, block := range blocks {
		name, content := string(block[2]), string(block[3])
		require.Equal(t, string(block[1]), name)
		if bytes.Contains(block[0], []byte("```diff ")) {
			p.change(name, content)
		} else {
			p.write(name, content)
		}
	}
	modules, err := os.ReadFile("../go.mod") // its version is in the cache
	require.NoError(t, err)
	version := regexp.MustCompile(`github\.com/golang-jwt/jwt/v5 \S+`).Find(modules)
	p.runGo("mod", "edit", "-require="+strings.ReplaceAll(string(version), " ", "@"))
	p.runGo("mod", "tidy")
	if _, err := os.Stat(filepath.Join(p.dir, "main_test.go")); err == nil {
		p.runGo("test", ".", "-contract.update")
	}
	p.check()
	return p
}

// change applies the lines of a diff block to a file, which is renamed before if it is one in TypeScript.
func (p *project) change(name, diff string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if base, isTS := strings.CutSuffix(path, ".ts"); isTS {
		require.NoError(p.t, os.Rename(base+".js", path))
	}
	text, err := os.ReadFile(path)
	require.NoError(p.t, err)
	content := string(text)
	var from, to string
	replace := func() {
		require.Equal(p.t, 1, strings.Count(content, from), "%s has to be once in %s", from, name)
		content, from, to = strings.Replace(content, from, to, 1), "", ""
	}
	previous := byte('-')
	for line := range strings.Lines(diff) {
		if line[0] == '-' && previous != '-' {
			replace() // what is before belongs to another place
		}
		previous = line[0]
		if line[0] != '+' {
			from += line[1:]
		}
		if line[0] != '-' {
			to += line[1:]
		}
	}
	replace()
	p.write(name, content)
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

// connect returns a client of the start page's server, which is closed at the end of the test, and its errors.
func connect(t *testing.T, n *node, token string) (*client.Client, <-chan error) {
	failed := make(chan error, 100)
	c := client.New("ws://"+n.addr+"/ws", &client.Options{
		Token:   func(context.Context, bool) (string, error) { return token, nil },
		OnError: func(_ string, err error) { failed <- err },
	})
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c, failed
}

// testLimitAndHistory sends one message of a sender, which a reader receives later, and then more than the limit permits.
func testLimitAndHistory(t *testing.T, n *node, sender, reader string, sent said) {
	writes, failed := connect(t, n, sender)
	require.NoError(t, client.Send(t.Context(), writes, say{sent.Text}))
	received := make(chan said, 50)
	reads, _ := connect(t, n, reader)
	_, err := reads.Subscribe(t.Context(), "room/go", &client.SubscribeOptions{
		Last:     50,
		Handlers: []client.Handler{client.HandlerFor(func(m said, _ *client.Received) { received <- m })},
	})
	require.NoError(t, err)
	select {
	case m := <-received:
		assert.Equal(t, sent, m)
	case <-time.After(timeout):
		assert.Fail(t, "the message before the subscription is missing")
	}
	for range 60 {
		if err = client.Send(t.Context(), writes, say{"again"}); err != nil {
			break
		}
	}
	if err == nil {
		select {
		case err = <-failed:
		case <-time.After(timeout):
		}
	}
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
}

// TestStart_RoomLimitsAndRecovers builds the server of the first section, and is its client.
func TestStart_RoomLimitsAndRecovers(t *testing.T) {
	testLimitAndHistory(t, newStart(t, "A room").start(nil), "", "", said{Text: "hi"})
}

// TestStart_ServerAuthenticatesLimitsAndRecovers builds the server of the start page, and is its client.
func TestStart_ServerAuthenticatesLimitsAndRecovers(t *testing.T) {
	n := newStart(t, "Testing").start(startEnvironment)
	forged, _ := connect(t, n, "forged")
	_, err := forged.Subscribe(t.Context(), "room/go", nil)
	assert.Equal(t, errors.Unauthenticated, errors.CodeOf(err))
	testLimitAndHistory(t, n, tokenOf(t, n, "ann"), tokenOf(t, n, "bob"), said{"ann", "hi"})
}

// TestStart_Page builds the page of the start page, checks its types, and operates it in Chromium.
func TestStart_Page(t *testing.T) {
	testscale.FullOnly(t, "TestStart_ServerAuthenticatesLimitsAndRecovers")
	browser := browsertest.Start(t)
	p := newStart(t, "TypeScript")
	require.NoError(t, os.Rename(filepath.Join(p.dir, "page/page.js"), filepath.Join(p.dir, "page/page.ts")))
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
	testRoom(t, browser, n.addr, "ann")
}

// TestStart_PageWithoutBuild operates the pages of the first two sections in Chromium.
func TestStart_PageWithoutBuild(t *testing.T) {
	testscale.FullOnly(t, "TestStart_RoomLimitsAndRecovers")
	browser := browsertest.Start(t)
	for heading, sender := range map[string]string{"A room": "guest", "Users": "ann"} {
		t.Run(heading, func(t *testing.T) { testRoom(t, browser, newStart(t, heading).start(startEnvironment).addr, sender) })
	}
}

// testRoom sends messages of ann, whom the page shows as sender, and opens pages that receive them.
func testRoom(t *testing.T, browser context.Context, addr, sender string) {
	const shown = `[...document.querySelectorAll("li")].map((li) => li.textContent)`
	ann, bob := open(browser, t, addr, "?user=ann"), open(browser, t, addr, "?user=bob")
	ann.WaitFor(`document.querySelector("form").onsubmit !== null`)
	bob.WaitFor(`document.querySelector("form").onsubmit !== null`)
	ann.submit("input", "hi")
	bob.WaitEqual(shown, []string{sender + ": hi"})
	ann.WaitEqual(shown, []string{sender + ": hi"})
	carol := open(browser, t, addr, "?user=carol")
	carol.WaitEqual(shown, []string{sender + ": hi"})
	// At once: while a busy machine sends them one by one, the limit is not reached.
	ann.eval(`const field = document.querySelector("input"); for (let i = 0; i < 50; i++) { field.value = "again"; field.form.requestSubmit() }`)
	ann.WaitFor(`document.querySelector("output").textContent.includes("try again in")`)
}
