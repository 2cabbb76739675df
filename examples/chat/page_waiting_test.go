package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
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
	for name, end := range map[string]func(t *testing.T, ann *page, node *server){
		"lost": func(_ *testing.T, ann *page, _ *server) {
			eval[chromedp.Void](ann, `WebSocket.latest.close()`)
		},
		"the node shuts down": func(t *testing.T, _ *page, node *server) {
			require.NoError(t, node.router.Shutdown(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(t, "-capacity=4", "-refill=2")
			cfg.broker = memory.NewBroker()
			one, two := newServer(cfg), newServer(cfg)
			var nodes connector
			nodes.current.Store(one)
			ann, bob := openPage(browser, t, serveURL(t, &nodes), desktop), openPage(browser, t, serveURL(t, two), desktop)
			eval[chromedp.Void](ann, latestSocket)
			ann.signIn("ann", "garden")
			bob.signIn("bob", "garden")
			var want []string
			ann.flood("drop", 9)
			for n := range 9 {
				want = append(want, fmt.Sprint("ann: drop ", n))
			}
			assert.Greater(t, eval[int](ann, `document.querySelectorAll("[data-state=pending]").length`), 2)
			nodes.current.Store(two)
			end(t, ann, one)
			bob.WaitEqual(conversation, want)
			ann.WaitFor(`!document.querySelector("[data-state=pending]")`)
			assert.Equal(t, 2, two.router.Stats().Conns)
		})
	}
}

// A custom message does not say which call the server has rejected.
func testCustomMessageEndsLatestCall(t *testing.T, browser context.Context) {
	chat := startProgram(t, "-capacity=2", "-refill=1", "-on-exceeded=custom")
	one := openPage(browser, t, chat.url(), desktop)
	one.signIn("ann", "garden")
	two := one.openTab(chat.url(), desktop)
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
