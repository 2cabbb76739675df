package boardpage_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
)

// A page is a page in a browser tab.
type page struct{ *browsertest.Page }

func openPage(browser context.Context, t *testing.T, url string) *page {
	t.Helper()
	p := &page{browsertest.Open(browser, t, url)}
	p.Expect("console.info: ") // React recommends its tools for developers
	return p
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *page, expression string) T {
	p.T.Helper()
	return browsertest.Eval[T](p.Page, expression)
}

// enter types text into a field and presses Enter. chromedp.SendKeys would read attributes of the field
// while another goroutine of chromedp updates them.
func (p *page) enter(id, text string) {
	p.T.Helper()
	p.Do(chromedp.Focus(chromedp.ID(id)), chromedp.KeyEvent(text+kb.Enter))
}
