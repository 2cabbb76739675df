package aichatpage_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

const root = "../../.."

func block(t *testing.T, guide, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guides", guide))
	require.NoError(t, err)
	found := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(text)
	require.NotNil(t, found, language)
	return string(found[1])
}

// A guideProgram is the program of a guide, in a folder with its page.
type guideProgram struct {
	t           *testing.T
	dir, binary string
}

// buildProgram builds the first Go block of a guide. A server that listens on localhost:8080
// listens on addr.
func buildProgram(t *testing.T, guide, addr string) *guideProgram {
	t.Helper()
	const module = ".." // requires all that guides import
	//nolint:usetesting // it must be inside the module, so that its packages are found
	source, err := os.MkdirTemp(module, "_guide")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(source) })
	text := strings.ReplaceAll(block(t, guide, "go"), "localhost:8080", addr)
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.go"), []byte(text), 0o600))
	p := &guideProgram{t: t, dir: t.TempDir()}
	p.binary = filepath.Join(p.dir, "program")
	command := exec.Command("go", "build", "-o", p.binary, "./"+filepath.Base(source))
	command.Dir = module
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

func (p *guideProgram) write(name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o700))
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

// start starts the program, and waits until it serves its page.
func (p *guideProgram) start(addr string, flags ...string) *exec.Cmd {
	p.t.Helper()
	command := exec.Command(p.binary, flags...)
	command.Dir = p.dir
	require.NoError(p.t, command.Start())
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	require.Eventually(p.t, func() bool {
		resp, err := http.Get("http://" + addr)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, browsertest.Timeout, 10*time.Millisecond)
	return command
}

// TestGuides runs the programs and the pages of the guides about runs.
func TestGuides(t *testing.T) {
	testscale.FullOnly(t, "TestServer_AnswersWhatThePageSends")
	browser := browsertest.Start(t)
	t.Run("AI chat", func(t *testing.T) { testGuideAIChat(t, browser) })
	t.Run("jobs", func(t *testing.T) { testGuideJobs(t, browser) })
}

const (
	paragraphs = `[...document.querySelectorAll("p")].map((p) => p.textContent)`
	isStopped  = `document.querySelector("#text") && !document.querySelector("#stop")`
)

func testGuideAIChat(t *testing.T, browser context.Context) {
	addr := freeport.Address()
	program := buildProgram(t, "ai-chat.md", addr)
	program.write("page/index.html", block(t, "ai-chat.md", "html"))
	program.write("page/page.tsx", block(t, "ai-chat.md", "tsx"))
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("testdata/guide", name))
		require.NoError(t, err)
		program.write("page/"+name, string(text))
	}
	nodetest.Install(t, filepath.Join(program.dir, "page"))
	bundle := exec.Command(nodetest.Program(t, "npx"), "esbuild", "page.tsx", "--bundle", "--format=esm", "--target=es2022", "--jsx=automatic", "--outfile=page.js")
	bundle.Dir = filepath.Join(program.dir, "page")
	out, err := bundle.CombinedOutput()
	require.NoError(t, err, "%s", out)
	program.start(addr)

	page := browsertest.Open(browser, t, "http://"+addr)
	page.Expect("console.info: ") // React recommends its tools for developers
	page.WaitFor(isStopped)
	page.Do(chromedp.Focus(chromedp.ID("text")), chromedp.KeyEvent("hello"+kb.Enter))
	page.WaitFor(paragraphs + `[1].length > 50`)
	tab := page.OpenTab("http://" + addr)
	tab.Expect("console.info: ")
	tab.WaitFor(`document.querySelector("#stop")`)
	page.Do(chromedp.Reload())
	page.WaitFor(paragraphs + `[1].length > 100`)
	page.Do(chromedp.Click(chromedp.ID("stop")))
	page.WaitFor(isStopped)
	tab.WaitFor(isStopped)
	stopped := browsertest.Eval[[]string](tab, paragraphs)
	require.Len(t, stopped, 2)
	page.Do(chromedp.Reload())
	page.WaitEqual(paragraphs, stopped)

	page.Do(chromedp.Focus(chromedp.ID("text")), chromedp.KeyEvent("again"+kb.Enter))
	page.WaitFor(paragraphs + `[3].length > 50`)
	page.Do(chromedp.Navigate("about:blank"))
	tab.Do(chromedp.Reload())
	tab.WaitFor(paragraphs + `[3].split("difficult question").length === 21`)
	tab.WaitFor(isStopped)
}

func testGuideJobs(t *testing.T, browser context.Context) {
	server := redistest.Start(t)
	program := buildProgram(t, "jobs.md", "127.0.0.1:0")
	program.write("index.html", block(t, "jobs.md", "html"))
	addrs := []string{freeport.Address(), freeport.Address()}
	one := program.start(addrs[0], "-addr="+addrs[0], "-redis="+server.Addr)
	program.start(addrs[1], "-addr="+addrs[1], "-redis="+server.Addr)
	first, second := browsertest.Open(browser, t, "http://"+addrs[0]), browsertest.Open(browser, t, "http://"+addrs[1])
	const rows = `document.querySelector("#bar").value`
	first.Do(chromedp.Click(chromedp.ID("start")))
	first.WaitFor(rows + " > 5")
	second.Do(chromedp.Reload())
	second.WaitFor(rows + " > 10")
	first.Do(chromedp.Navigate("about:blank"))
	require.NoError(t, one.Process.Kill())
	second.WaitFor(rows + " > 60") // the second node goes on
	second.Do(chromedp.Click(chromedp.ID("stop")))
	second.WaitFor(`document.querySelector("#text").textContent.startsWith("stopped, ")`)
}
