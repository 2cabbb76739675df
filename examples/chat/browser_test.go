package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	dialogs "github.com/chromedp/cdproto/page"
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
	t.Skip("no chromium in PATH; install it to test the page in a browser")
	return ""
}

// startBrowser returns the context of a browser, which stops at the end of the test. The
// tests use chromedp because it needs no separate driver and few modules.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, // the sandbox does not work as root and in most containers; the page is trusted
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Env("LANGUAGE=en_US"),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// A page is the chat page in a browser tab. At its end the test fails for every recorded
// problem, such as a console message, that does not start with expectedProblem.
type page struct {
	t               *testing.T
	ctx             context.Context //nolint:containedctx // chromedp identifies the tab by its context
	expectedProblem string          // a prefix; empty: none

	mu       sync.Mutex
	urls     map[network.RequestID]string
	problems []string
}

// A screen is the viewport of a page, in CSS pixels.
type screen struct {
	width, height int64
	scale         float64
	touch         bool
}

var (
	desktop = screen{width: 1280, height: 800, scale: 1}
	phone   = screen{width: 390, height: 844, scale: 2, touch: true}
)

// openPage opens the page in a new browser context: it shares no storage with other pages.
func openPage(ctx context.Context, t *testing.T, url string, s screen) *page {
	t.Helper()
	return newPage(ctx, t, url, s, chromedp.WithNewBrowserContext())
}

// openTab opens the page in another tab with the same storage.
func (p *page) openTab(url string, s screen) *page {
	p.t.Helper()
	return newPage(p.ctx, p.t, url, s)
}

func newPage(ctx context.Context, t *testing.T, url string, s screen, opts ...chromedp.ContextOption) *page {
	t.Helper()
	p := &page{t: t, urls: map[network.RequestID]string{}}
	ctx, cancel := chromedp.NewContext(ctx, append(opts, chromedp.WithListener(p.listen))...)
	p.ctx = ctx
	t.Cleanup(func() {
		p.checkConsole()
		cancel()
	})
	p.do(emulate(s), scheme("light"), chromedp.Navigate(url))
	return p
}

func emulate(s screen) chromedp.Action[chromedp.Void] {
	opts := []chromedp.EmulateViewportOption{chromedp.EmulateScale(s.scale)}
	if s.touch {
		opts = append(opts, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	return chromedp.Steps(chromedp.EmulateViewport(s.width, s.height, opts...),
		chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
			return err
		}))
}

// scheme sets the preferred color scheme, "light" or "dark".
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}

// listen records problems: console output, exceptions, dialogs and failed requests.
func (p *page) listen(event any) {
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
	case *log.EventEntryAdded:
		record("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text)
	case *dialogs.EventJavascriptDialogOpening:
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

func (p *page) checkConsole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.problems {
		if p.expectedProblem == "" || !strings.HasPrefix(line, p.expectedProblem) {
			assert.Fail(p.t, "the page caused: "+line)
		}
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	if chromedp.FromContext(p.ctx).Target == nil {
		ctx = p.ctx // chromedp closes the tab when the first context it is used with ends
	}
	require.NoError(p.t, chromedp.Do(ctx, steps...))
}

// press sends each key as one event that carries its text, as a keyboard does, so that
// preventDefault on keydown also suppresses the text.
func (p *page) press(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		for _, key := range keys {
			if err := pressKey(ctx, key, modifiers); err != nil {
				return err
			}
		}
		return nil
	}))
}

func pressKey(ctx context.Context, key rune, modifiers []chromedp.Modifier) error {
	events := kb.Encode(key)
	down, up := events[0], events[len(events)-1]
	for _, modifier := range modifiers {
		down.Modifiers |= int64(modifier)
	}
	if len(events) == 3 && down.Modifiers&int64(chromedp.ModifierCtrl) == 0 {
		down.Text = events[1].Text
	}
	up.Modifiers = down.Modifiers
	for _, event := range []*input.DispatchKeyEventParams{down, up} {
		if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, *event); err != nil {
			return err
		}
	}
	return nil
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

// attempt makes an expression false while it throws, for example because an element does not exist yet.
func attempt(expression string) string {
	return "(() => { try { return " + expression + " } catch { return false } })()"
}

// waitFor waits until a JavaScript expression is true.
func (p *page) waitFor(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	poll := chromedp.Poll[bool](attempt("!!("+expression+")"), chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(timeout))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		p.screenshot("timeout")
		shown := eval[string](p, "document.body.innerText")
		p.mu.Lock()
		defer p.mu.Unlock()
		require.FailNow(p.t, "timed out waiting for: "+expression, "%v\n%s\n%s", err, shown, strings.Join(p.problems, "\n"))
	}
}

// waitEqual waits until the value of a JavaScript expression equals want, both as JSON.
func (p *page) waitEqual(expression string, want any) {
	p.t.Helper()
	text, err := json.Marshal(want)
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	equal := fmt.Sprintf("JSON.stringify(%s) === JSON.stringify(%s)", expression, text)
	poll := chromedp.Poll[bool](attempt(equal), chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(timeout))
	_, err = chromedp.Run(ctx, poll)
	if errors.Is(err, chromedp.ErrPollingTimeout) || errors.Is(err, context.DeadlineExceeded) {
		p.screenshot("timeout")
		require.JSONEq(p.t, string(text), eval[string](p, "JSON.stringify("+expression+" ?? null)"))
	}
	require.NoError(p.t, err, expression)
}

// checkScreen writes screenshots in both color schemes to the artifact directory, and checks
// the contrast of all texts and that nothing overflows horizontally.
func (p *page) checkScreen(name string) {
	p.t.Helper()
	for _, colors := range []string{"light", "dark"} {
		p.do(scheme(colors))
		assert.Empty(p.t, eval[[]string](p, lowContrast), "%s: contrast is too low in the %s color scheme", name, colors)
		p.screenshot(name + "-" + colors)
	}
	p.do(scheme("light"))
	assert.LessOrEqual(p.t, eval[int](p, overflow), 0, "%s: horizontal overflow in pixels", name)
}

func (p *page) screenshot(name string) {
	p.t.Helper()
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), image, 0o600))
}

// fill replaces the text of a field.
func (p *page) fill(id, text string) {
	p.t.Helper()
	p.do(chromedp.Focus(chromedp.ID(id)))
	p.press("a", chromedp.ModifierCtrl)
	p.press(kb.Backspace + text)
}

func (p *page) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

func (p *page) signIn(name, room string) {
	p.t.Helper()
	p.fill("name", name)
	p.fill("room", room)
	p.press(kb.Enter)
	p.waitFor(hasJoined)
}

// say sends a message and waits until the server has published it.
func (p *page) say(text string) {
	p.t.Helper()
	p.do(chromedp.Focus(chromedp.ID("text")))
	p.press(text + kb.Enter)
	p.waitFor(typedText + ` === "" && !document.querySelector("[data-state=pending]")`)
}
