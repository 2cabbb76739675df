//go:build !js

package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// A Page is a page in a browser tab. At its end the test fails for every problem that it did not expect:
// console output, exceptions, dialogs and failed requests. Its methods fail the test if they do not
// succeed within [Timeout]. They are for the goroutine of the test.
type Page struct {
	T *testing.T

	ctx      context.Context //nolint:containedctx // chromedp identifies the tab by its context
	expected []string        // prefixes of problems

	mu       sync.Mutex
	urls     map[network.RequestID]string
	problems []string
}

// Open opens a page in a new browser context: it shares no storage with other pages. setup runs in the
// tab before the page is loaded.
func Open(browser context.Context, t *testing.T, url string, setup ...chromedp.Action[chromedp.Void]) *Page {
	t.Helper()
	return open(browser, t, url, setup, chromedp.WithNewBrowserContext())
}

// OpenTab opens a page in another tab with the same storage.
func (p *Page) OpenTab(url string, setup ...chromedp.Action[chromedp.Void]) *Page {
	p.T.Helper()
	return open(p.ctx, p.T, url, setup)
}

func open(ctx context.Context, t *testing.T, url string, setup []chromedp.Action[chromedp.Void], opts ...chromedp.ContextOption) *Page {
	t.Helper()
	p := &Page{T: t, urls: map[network.RequestID]string{}}
	ctx, cancel := chromedp.NewContext(ctx, append(opts, chromedp.WithListener(p.listen))...)
	p.ctx = ctx
	t.Cleanup(func() {
		assert.Empty(t, p.unexpected(), "the page caused problems")
		cancel()
	})
	focus := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { // pages in the background have no focus
		_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	})
	// Without timeout: chromedp closes the tab when the first context it is used with ends.
	require.NoError(t, chromedp.Do(ctx, focus, chromedp.Steps(setup...), chromedp.Navigate(url)))
	p.WaitFor(`document.readyState === "complete"`) // its scripts have run
	return p
}

// Expect makes the test ignore problems that start with prefix, such as
// "network error: WebSocket connection to".
func (p *Page) Expect(prefix string) { p.expected = append(p.expected, prefix) }

// listen records problems. chromedp calls it from its own goroutine.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record := func(format string, args ...any) { p.problems = append(p.problems, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			record("console.%s: %s%s", e.Type, arg.Value, arg.Description)
		}
	case *runtime.EventExceptionThrown:
		record("uncaught: %s", (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *browserlog.EventEntryAdded:
		record("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		record("dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		p.urls[e.RequestID] = e.Request.URL
	case *network.EventLoadingFailed:
		record("failed: %s: %s", p.urls[e.RequestID], e.ErrorText)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			record("status %d: %s", e.Response.Status, e.Response.URL)
		}
	}
}

func (p *Page) unexpected() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.problems), func(problem string) bool {
		return slices.ContainsFunc(p.expected, func(prefix string) bool { return strings.HasPrefix(problem, prefix) })
	})
}

// Do runs steps in the tab.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Timeout)
	defer cancel()
	require.NoError(p.T, chromedp.Do(ctx, steps...))
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](p *Page, expression string) T {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(p.T, err, expression)
	return value
}

// WaitFor waits until a JavaScript expression is true. An expression that throws is false, for example
// because an element does not exist yet.
func (p *Page) WaitFor(expression string) {
	p.T.Helper()
	p.wait("!!("+expression+")", func() string { return expression })
}

// WaitEqual waits until the value of a JavaScript expression equals want, both as JSON. An expression that
// throws has no value yet.
func (p *Page) WaitEqual(expression string, want any) {
	p.T.Helper()
	text, err := json.Marshal(want)
	require.NoError(p.T, err)
	p.wait(fmt.Sprintf("JSON.stringify(%s) === JSON.stringify(%s)", expression, text), func() string {
		got := Eval[string](p, attempt("JSON.stringify("+expression+") ?? ''", "'(it throws)'"))
		return fmt.Sprintf("%s\nwant %s\ngot  %s", expression, text, got)
	})
}

// attempt returns an expression whose value is otherwise while another expression throws.
func attempt(expression, otherwise string) string {
	return "(() => { try { return " + expression + " } catch { return " + otherwise + " } })()"
}

// wait waits until a condition is true. If it times out, the test fails with what describe returns, the text
// of the page and its problems.
func (p *Page) wait(condition string, describe func() string) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Timeout)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](attempt(condition, "false"),
		chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(Timeout)))
	if errors.Is(err, chromedp.ErrPollingTimeout) || errors.Is(err, context.DeadlineExceeded) {
		p.Screenshot("timeout")
		expression, shown := describe(), Eval[string](p, "document.body.innerText")
		p.mu.Lock()
		defer p.mu.Unlock()
		require.FailNow(p.T, "timed out waiting for "+expression, "%s\n%s", shown, strings.Join(p.problems, "\n"))
	}
	require.NoError(p.T, err, condition)
}

// Screenshot writes a picture of the page to the artifact directory of the test.
func (p *Page) Screenshot(name string) {
	p.T.Helper()
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.T, err)
	require.NoError(p.T, os.WriteFile(filepath.Join(p.T.ArtifactDir(), name+".png"), image, 0o600))
}

// ColorScheme sets the preferred color scheme, "light" or "dark". Pages move nothing then.
func ColorScheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}

// Violations returns what axe-core, whose source the page has loaded, finds wrong.
func Violations(p *Page) string {
	p.T.Helper()
	Eval[any](p, `window.violations = undefined, axe.run().then(({ violations }) => window.violations = violations), undefined`)
	p.WaitFor(`window.violations`)
	return Eval[string](p, `violations.map(({ id, help, nodes }) => id + ": " + help + "\n" +
		nodes.slice(0, 3).map(({ html, failureSummary }) => "  " + html.slice(0, 300) + "\n  " + failureSummary).join("\n")).join("\n")`)
}
