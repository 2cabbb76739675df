package chatpage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/interop/exampletest"
)

// latestSocket lets a test close the connection of a page.
const latestSocket = `void (window.WebSocket = class extends WebSocket {
	constructor(...args) {
		super(...args);
		WebSocket.latest = this;
	}
})`

// Messages that wait for the rate limit are sent on the next connection, which joins the room first.
func testWaitingMessagesSurviveConnection(t *testing.T, browser context.Context) {
	for name, end := range map[string]func(ann *page, node *exampletest.Program){
		"lost": func(ann *page, _ *exampletest.Program) {
			eval[chromedp.Void](ann, `WebSocket.latest.close()`)
		},
		"the node shuts down": func(_ *page, node *exampletest.Program) { node.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			one, two := startTwoNodes(t, "-capacity=4", "-refill=2")
			nodes := startConnector(t, one)
			ann, bob := openPage(browser, t, nodes.url, desktop), openPage(browser, t, two.URL(), desktop)
			eval[chromedp.Void](ann, latestSocket)
			ann.signIn("ann", "garden")
			bob.signIn("bob", "garden")
			var want []string
			ann.flood("drop", 9)
			for n := range 9 {
				want = append(want, fmt.Sprint("ann: drop ", n))
			}
			assert.Greater(t, eval[int](ann, `document.querySelectorAll("[data-state=pending]").length`), 2)
			nodes.use(two)
			end(ann, one)
			bob.WaitEqual(conversation, want)
			ann.WaitFor(`!document.querySelector("[data-state=pending]")`)
			assert.EqualValues(t, 2, metric(t, two, connections))
		})
	}
}

// A custom message does not say which call the server has rejected.
func testCustomMessageEndsLatestCall(t *testing.T, browser context.Context) {
	chat := startProgram(t, "-capacity=2", "-refill=1", "-on-exceeded=custom")
	one := openPage(browser, t, chat.URL(), desktop)
	one.signIn("ann", "garden")
	two := one.openTab(chat.URL(), desktop)
	two.press(kb.Enter)
	two.WaitFor(hasJoined)
	one.Do(chromedp.Focus(chromedp.ID("text")))
	two.Do(chromedp.Focus(chromedp.ID("text")))
	for eval[bool](two, `!document.querySelector("[data-state=rejected]")`) {
		one.press("1" + kb.Enter)
		two.press("2" + kb.Enter)
		two.WaitFor(`!document.querySelector("[data-state=pending]")`)
	}
	two.WaitEqual(`document.querySelector(".failure span").textContent`, "Rejected: rate limit exceeded.")
	for eval[bool](two, `document.querySelector("[data-action=retry]") !== null`) {
		two.click("[data-action=retry]")
		two.WaitFor(`!document.querySelector("[data-state=pending]")`)
	}
	two.WaitEqual(conversation+".at(-1)", "You: 2")
}
