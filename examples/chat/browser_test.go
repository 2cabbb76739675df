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

// patience is how long a page may take to show what it must, on a busy machine.
const patience = 30 * time.Second

// chromium returns the path of a browser. Where there is none it skips the test,
// or fails it if one is required.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PENSTOCK_REQUIRE_CHROMIUM") == "1" || os.Getenv("CI") == "true" {
		t.Fatal("there is no chromium in PATH; install it: PENSTOCK_REQUIRE_CHROMIUM=1 or CI=true requires it")
	}
	t.Skip("there is no chromium in PATH; install it to test the page in a browser")
	return ""
}

// startBrowser returns the context of a browser that ends with the test. It is
// driven by chromedp, which needs no driver beside the browser, and brings no
// module but that of the browser's protocol.
func startBrowser(t *testing.T) context.Context {
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, // which root and most containers do not have; the page is ours
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

// A visitor is a tab with the page. It fails its test for whatever the console
// shows at the end, but for lines that begin with what it tolerates.
type visitor struct {
	t         *testing.T
	ctx       context.Context //nolint:containedctx // it is the handle of the tab
	tolerates string

	mu      sync.Mutex
	urls    map[network.RequestID]string
	trouble []string
}

// A screen is what a visitor looks at.
type screen struct {
	width, height int64
	scale         float64
	touch         bool
}

var (
	desktop = screen{width: 1280, height: 800, scale: 1}
	phone   = screen{width: 390, height: 844, scale: 2, touch: true}
)

// visit opens the page as somebody new, who shares nothing with other visitors.
func visit(ctx context.Context, t *testing.T, url string, s screen) *visitor {
	t.Helper()
	return openTab(ctx, t, url, s, chromedp.WithNewBrowserContext())
}

// tab opens the page once more for the same person.
func (v *visitor) tab(url string, s screen) *visitor {
	v.t.Helper()
	return openTab(v.ctx, v.t, url, s)
}

func openTab(ctx context.Context, t *testing.T, url string, s screen, opts ...chromedp.ContextOption) *visitor {
	t.Helper()
	v := &visitor{t: t, urls: map[network.RequestID]string{}}
	ctx, cancel := chromedp.NewContext(ctx, append(opts, chromedp.WithListener(v.listen))...)
	v.ctx = ctx
	t.Cleanup(func() {
		v.checkConsole()
		cancel()
	})
	v.do(emulate(s), scheme("light"), chromedp.Navigate(url))
	return v
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

// scheme chooses between "light" and "dark".
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}

// listen notes everything that a good page never causes.
func (v *visitor) listen(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	note := func(format string, args ...any) { v.trouble = append(v.trouble, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			note("console.%s: %s%s", e.Type, arg.Value, arg.Description)
		}
	case *runtime.EventExceptionThrown:
		note("uncaught: %s", (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		note("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text)
	case *dialogs.EventJavascriptDialogOpening:
		note("dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		v.urls[e.RequestID] = e.Request.URL
	case *network.EventLoadingFailed:
		note("failed: %s: %s", v.urls[e.RequestID], e.ErrorText)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			note("status %d: %s", e.Response.Status, e.Response.URL)
		}
	}
}

func (v *visitor) checkConsole() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, line := range v.trouble {
		if v.tolerates == "" || !strings.HasPrefix(line, v.tolerates) {
			assert.Fail(v.t, "the page caused: "+line)
		}
	}
}

func (v *visitor) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if chromedp.FromContext(v.ctx).Target == nil {
		ctx = v.ctx // the tab would end with the first context it sees
	}
	require.NoError(v.t, chromedp.Do(ctx, steps...))
}

// press strikes keys, each as one event with its text, as a keyboard does: a page
// that prevents it prevents the text too.
func (v *visitor) press(keys string, modifiers ...chromedp.Modifier) {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		for _, key := range keys {
			if err := strike(ctx, key, modifiers); err != nil {
				return err
			}
		}
		return nil
	}))
}

func strike(ctx context.Context, key rune, modifiers []chromedp.Modifier) error {
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

// eval returns what a JavaScript expression is.
func eval[T any](v *visitor, expression string) T {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(v.t, err, expression)
	return value
}

// attempt makes an expression false while it throws, because what it looks at is not there yet.
func attempt(expression string) string {
	return "(() => { try { return " + expression + " } catch { return false } })()"
}

// until waits for a JavaScript expression to be true.
func (v *visitor) until(expression string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	poll := chromedp.Poll[bool](attempt("!!("+expression+")"), chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(patience))
	if _, err := chromedp.Run(ctx, poll); err != nil {
		v.picture("stuck")
		shown := eval[string](v, "document.body.innerText")
		v.mu.Lock()
		defer v.mu.Unlock()
		require.FailNow(v.t, "the page never came to this: "+expression, "%v\n%s\n%s", err, shown, strings.Join(v.trouble, "\n"))
	}
}

// shows waits until a JavaScript expression is as wanted.
func (v *visitor) shows(expression string, want any) {
	v.t.Helper()
	text, err := json.Marshal(want)
	require.NoError(v.t, err)
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	same := fmt.Sprintf("JSON.stringify(%s) === JSON.stringify(%s)", expression, text)
	poll := chromedp.Poll[bool](attempt(same), chromedp.WithPollingInterval(10*time.Millisecond), chromedp.WithPollingTimeout(patience))
	_, err = chromedp.Run(ctx, poll)
	if errors.Is(err, chromedp.ErrPollingTimeout) || errors.Is(err, context.DeadlineExceeded) {
		v.picture("stuck")
		require.JSONEq(v.t, string(text), eval[string](v, "JSON.stringify("+expression+" ?? null)"))
	}
	require.NoError(v.t, err, expression)
}

// shot writes a picture of the page, in both colour schemes, to where test
// artifacts go, and checks that all of it can be read.
func (v *visitor) shot(name string) {
	v.t.Helper()
	for _, colours := range []string{"light", "dark"} {
		v.do(scheme(colours))
		assert.Empty(v.t, eval[[]string](v, illegible), "%s: what has too little contrast in the %s colours", name, colours)
		v.picture(name + "-" + colours)
	}
	v.do(scheme("light"))
	assert.LessOrEqual(v.t, eval[int](v, overflow), 0, "%s: pixels that lie outside", name)
}

func (v *visitor) picture(name string) {
	v.t.Helper()
	picture, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
	require.NoError(v.t, err)
	require.NoError(v.t, os.WriteFile(filepath.Join(v.t.ArtifactDir(), name+".png"), picture, 0o600))
}

// fill types over what a field holds.
func (v *visitor) fill(id, text string) {
	v.t.Helper()
	v.do(chromedp.Focus(chromedp.ID(id)))
	v.press("a", chromedp.ModifierCtrl)
	v.press(kb.Backspace + text)
}

func (v *visitor) click(selector string) {
	v.t.Helper()
	v.do(chromedp.Click(chromedp.CSS(selector)))
}

func (v *visitor) signIn(name, room string) {
	v.t.Helper()
	v.fill("name", name)
	v.fill("room", room)
	v.press(kb.Enter)
	v.until(joined)
}

// say sends a message, and waits until it is sent.
func (v *visitor) say(text string) {
	v.t.Helper()
	v.do(chromedp.Focus(chromedp.ID("text")))
	v.press(text + kb.Enter)
	v.until(written + ` === "" && !document.querySelector("[data-state=pending]")`)
}
