package chatpage_test

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
)

// A page is the chat page in a browser tab.
type page struct{ *browsertest.Page }

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
func openPage(browser context.Context, t *testing.T, url string, s screen) *page {
	t.Helper()
	return &page{browsertest.Open(browser, t, url, emulate(s), browsertest.ColorScheme("light"))}
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *page, expression string) T {
	p.T.Helper()
	return browsertest.Eval[T](p.Page, expression)
}

func emulate(s screen) chromedp.Action[chromedp.Void] {
	opts := []chromedp.EmulateViewportOption{chromedp.EmulateScale(s.scale)}
	if s.touch {
		opts = append(opts, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	return chromedp.EmulateViewport(s.width, s.height, opts...)
}

// press sends each key as one event that carries its text, as a keyboard does, so that
// preventDefault on keydown also suppresses the text.
func (p *page) press(keys string, modifiers ...chromedp.Modifier) {
	p.T.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
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

// checkScreen writes screenshots in both color schemes to the artifact directory, and checks
// the contrast of all texts and that nothing overflows horizontally.
func (p *page) checkScreen(name string) {
	p.T.Helper()
	for _, colors := range []string{"light", "dark"} {
		p.Do(browsertest.ColorScheme(colors))
		assert.Empty(p.T, eval[[]string](p, lowContrast), "%s: contrast is too low in the %s color scheme", name, colors)
		p.Screenshot(name + "-" + colors)
	}
	p.Do(browsertest.ColorScheme("light"))
	assert.LessOrEqual(p.T, eval[int](p, overflow), 0, "%s: horizontal overflow in pixels", name)
}

// fill replaces the text of a field.
func (p *page) fill(id, text string) {
	p.T.Helper()
	p.Do(chromedp.Focus(chromedp.ID(id)))
	p.press("a", chromedp.ModifierCtrl)
	p.press(kb.Backspace + text)
}

func (p *page) click(selector string) {
	p.T.Helper()
	p.Do(chromedp.Click(chromedp.CSS(selector)))
}

func (p *page) signIn(name, room string) {
	p.T.Helper()
	p.fill("name", name)
	p.fill("room", room)
	p.press(kb.Enter)
	p.WaitFor(hasJoined)
}

// say sends a message and waits until the server has published it.
func (p *page) say(text string) {
	p.T.Helper()
	p.Do(chromedp.Focus(chromedp.ID("text")))
	p.press(text + kb.Enter)
	p.WaitFor(typedText + ` === "" && !document.querySelector("[data-state=pending]")`)
}
