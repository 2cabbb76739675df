package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timeout bounds every wait for a page. It is long, because machines may be busy.
const timeout = 30 * time.Second

// chromium returns the path of the browser. If there is none, it skips the test, or fails
// it if PENSTOCK_REQUIRE_CHROMIUM=1 or CI=true is set.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PENSTOCK_REQUIRE_CHROMIUM") == "1" || os.Getenv("CI") == "true" {
		t.Fatal("no chromium in PATH; install it: PENSTOCK_REQUIRE_CHROMIUM=1 or CI=true requires it")
	}
	t.Skip("no chromium in PATH; install it to test the pages in a browser")
	return ""
}

// startBrowser returns the context of a browser, which stops at the end of the test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, // the sandbox does not work as root and in most containers; the pages are trusted
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// A page is a page in a browser tab. At its end the test fails for every problem, such as a
// console message, that contains none of the expected texts.
type page struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // chromedp identifies the tab by its context
	expected []string

	mu       sync.Mutex
	problems []string
}

func openPage(browser context.Context, t *testing.T, url string) *page {
	t.Helper()
	// React recommends its tools for developers.
	p := &page{t: t, expected: []string{"console.info: "}}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	t.Cleanup(func() {
		p.checkProblems()
		cancel()
	})
	focus := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { // pages in the background have no focus
		_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	})
	require.NoError(t, chromedp.Do(ctx, focus, chromedp.Navigate(url))) // without timeout: chromedp closes the tab when its first context ends
	return p
}

func (p *page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			p.problems = append(p.problems, fmt.Sprintf("console.%s: %s%s", e.Type, arg.Value, arg.Description))
		}
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, "uncaught: "+(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		p.problems = append(p.problems, fmt.Sprintf("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text))
	}
}

func (p *page) checkProblems() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		isExpected := false
		for _, text := range p.expected {
			isExpected = isExpected || strings.Contains(problem, text)
		}
		assert.True(p.t, isExpected, "the page caused: %s", problem)
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, steps...))
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(p.t, err, expression)
	return value
}

// waitEqual waits until the value of a JavaScript expression equals want, both as JSON. An expression
// that throws has no value yet.
func (p *page) waitEqual(expression string, want any) {
	p.t.Helper()
	text, err := json.Marshal(want)
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	equal := fmt.Sprintf("(() => { try { return JSON.stringify(%s) === JSON.stringify(%s) } catch { return false } })()", expression, text)
	_, err = chromedp.Run(ctx, chromedp.Poll[bool](equal, chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(timeout)))
	if errors.Is(err, chromedp.ErrPollingTimeout) || errors.Is(err, context.DeadlineExceeded) {
		p.mu.Lock()
		defer p.mu.Unlock()
		require.FailNow(p.t, "timed out waiting", "%s: want %s, got %s\n%s\n%s", expression, text, eval[string](p, "JSON.stringify("+expression+") ?? ''"),
			eval[string](p, "document.body.innerText"), strings.Join(p.problems, "\n"))
	}
	require.NoError(p.t, err, expression)
}

// enter types text into a field and presses Enter.
func (p *page) enter(id, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.ID(id), text+kb.Enter))
}
