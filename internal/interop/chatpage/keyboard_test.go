package chatpage_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

// focused is the ID or the text of the focused element, marked if its focus outline is not visible.
const focused = `(() => {
	const { id, textContent } = document.activeElement;
	const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
	return (id || textContent) + (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 ? "" : " (no visible outline)");
})()`

// pressTabs presses Tab once for each wanted element and checks that it receives the focus.
func (p *page) pressTabs(want ...string) {
	p.T.Helper()
	var elements []string
	for range want {
		p.press(kb.Tab)
		elements = append(elements, eval[string](p, focused))
	}
	assert.Equal(p.T, want, elements)
}

// spoiled makes the server reject every message while window.spoil is set.
const spoiled = `void (window.WebSocket = class extends WebSocket {
	send(data) { super.send(window.spoil ? data.replace('"room":"lobby"', '"room":""') : data); }
})`

func testKeyboardReachesEveryControl(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann := openPage(browser, t, chat.URL(), desktop)
	eval[chromedp.Void](ann, spoiled)
	ann.WaitEqual(focused, "name")
	ann.press("ann")
	ann.pressTabs("room", "signin-submit")
	ann.press(kb.Enter)
	ann.WaitFor(hasJoined)
	ann.WaitEqual(focused, "text")
	ann.press("one")
	ann.press(kb.Enter, chromedp.ModifierShift)
	ann.press("two")
	ann.pressTabs("send")
	ann.press(" ")
	ann.WaitEqual(conversation, []string{"You: one\ntwo"})
	ann.WaitEqual(focused, "text")
	ann.press("three" + kb.Enter)
	ann.WaitEqual(conversation, []string{"You: one\ntwo", "You: three"})
	ann.WaitEqual(focused, "text")
	ann.pressTabs("send", "send-burst", "people-refresh", "switch-room", "switch-submit", "search-query", "search-submit", "signout")
	ann.checkScreen("focus")

	ann.Do(chromedp.Focus(chromedp.ID("text")))
	eval[chromedp.Void](ann, `void (window.spoil = true)`)
	ann.press("rejected" + kb.Enter)
	ann.WaitFor(`document.querySelector("[data-state=rejected]")`)
	ann.press(kb.Tab, chromedp.ModifierShift)
	assert.Equal(t, "Discard", eval[string](ann, focused))
	ann.press(kb.Enter)
	ann.WaitEqual(focused, "text")
	ann.WaitFor(`!document.querySelector("[data-state=rejected]")`)
	ann.pressTabs("send")

	ann.Do(chromedp.Focus(chromedp.ID("people-refresh")))
	ann.press(kb.Enter)
	ann.WaitFor(`!document.querySelector("#notice").hidden`)
	ann.Do(chromedp.Focus(chromedp.ID("notice-close")))
	ann.press(kb.Enter)
	ann.WaitEqual(focused, "text")
}

func testKeyboardOpensDrawer(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann := openPage(browser, t, chat.URL(), screen{width: 700, height: 700, scale: 1})
	ann.signIn("ann", "garden")
	ann.Do(chromedp.Focus(chromedp.ID("side-toggle")))
	ann.press(kb.Enter)
	ann.WaitEqual(focused, "side-close")
	ann.pressTabs("people-refresh")
	ann.checkScreen("drawer")
	ann.press(kb.Escape)
	ann.WaitEqual(focused, "side-toggle")
	ann.press(" ")
	ann.WaitEqual(focused, "side-close")
	ann.press(kb.Enter)
	ann.WaitEqual(focused, "side-toggle")
}
