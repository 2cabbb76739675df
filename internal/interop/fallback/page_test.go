package fallback_test

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/router"
)

// directory has the TypeScript client with its packages, and the page.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

var bundle struct {
	once    sync.Once
	problem string
}

// buildPage returns a directory with the page. It skips the test if the npm registry cannot be reached.
func buildPage(t *testing.T) string {
	t.Helper()
	dir := directory.Path(t, func(dir string) {
		nodetest.CopySources(t, "../../../clients/ts", dir)
		nodetest.CopySources(t, "testdata", filepath.Join(dir, "page"))
	})
	bundle.once.Do(func() {
		command := exec.Command(nodetest.Program(t, "node"), "node_modules/esbuild/bin/esbuild", "page/page.js",
			"--bundle", "--format=esm", "--outdir=page/built", "--log-level=warning")
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			bundle.problem = fmt.Sprintf("%s%v", out, err)
		}
	})
	require.Empty(t, bundle.problem)
	return filepath.Join(dir, "page")
}

// A page is the page in a browser tab.
type page struct {
	*browsertest.Page
	id string
}

// open opens the page of a server.
func open(browser context.Context, t *testing.T, server, id string, setup ...chromedp.Action[chromedp.Void]) *page {
	t.Helper()
	return openFrom(browser, t, server, server, id, setup...)
}

// openFrom is open for a page that connects to another server than the one with its files.
func openFrom(browser context.Context, t *testing.T, files, server, id string, setup ...chromedp.Action[chromedp.Void]) *page {
	t.Helper()
	query := url.Values{"server": {server}, "id": {id}}
	p := &page{browsertest.Open(browser, t, files+"/?"+query.Encode(), setup...), id}
	p.expectBlocked(server)
	return p
}

// expectBlocked expects the problems that blocked WebSockets and lost requests cause.
func (p *page) expectBlocked(server string) {
	for _, prefix := range []string{"network error: ", "network warning: WebSocket", "failed: " + server + "/ws", "status 4", "status 5"} {
		p.Expect(prefix)
	}
}

// interval is the time between two numbers of a page.
const interval = 40 * time.Millisecond

// connect waits until the page is connected over HTTP.
func (p *page) connect() {
	p.T.Helper()
	p.WaitFor(`page.isConnected("stream", "poll")`)
}

// send sends numbers, and waits until all are answered and have arrived again.
func (p *page) send(n int) {
	p.T.Helper()
	browsertest.Eval[chromedp.Void](p.Page, fmt.Sprintf("void page.send(%d)", n))
	p.waitComplete(sendLimit)
}

// sendWhenConnected makes the page send numbers as soon as it is connected by one of the transports.
func (p *page) sendWhenConnected(transports []router.Transport, n int) {
	p.T.Helper()
	arguments := fmt.Sprint(n)
	for _, transport := range transports {
		arguments += fmt.Sprintf(", %q", strings.TrimPrefix(string(transport), "http-"))
	}
	browsertest.Eval[chromedp.Void](p.Page, "void page.sendWhenConnected("+arguments+")")
}

// sendLimit bounds the time until numbers have arrived.
const sendLimit = 4 * time.Minute

func (p *page) waitComplete(limit time.Duration) {
	p.T.Helper()
	for deadline := time.Now().Add(limit); !browsertest.Eval[bool](p.Page, "page.isComplete()"); {
		if !time.Now().Before(deadline) {
			require.FailNow(p.T, "the numbers have not arrived", browsertest.Eval[string](p.Page, "page.describe()"))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// transports returns the transports that the page has reported, in their order.
func (p *page) transports() []string {
	p.T.Helper()
	return browsertest.Eval[[]string](p.Page, "page.transports")
}

// checkExact checks that the site has handled the numbers of the page once and in order, that the page has received
// them once and in order, and that each call was handled and answered once.
func (s *site) checkExact(p *page) {
	p.T.Helper()
	want, once := []int{}, map[int]int{}
	for n := range browsertest.Eval[int](p.Page, "page.sent") {
		want = append(want, n+1)
		once[n+1] = 1
	}
	handled := s.of(p.id)
	assert.Equal(p.T, want, handled.numbers, "what the server has handled")
	assert.Equal(p.T, want, browsertest.Eval[[]int](p.Page, "page.received"), "what the page has received")
	assert.Equal(p.T, once, handled.asked, "calls that the server has handled")
	assert.ElementsMatch(p.T, want, browsertest.Eval[[]int](p.Page, "page.answered"), "answers")
	assert.Empty(p.T, browsertest.Eval[[]string](p.Page, "page.errors"))
}
