package chatpage_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

// shownMessages is how many messages of the history a page receives that joins a room for the first time.
const shownMessages = 50

const lostNotes = `[...document.querySelectorAll("[data-kind=note]")].filter((li) => li.textContent === "Some messages may be missing here.").length`

// controlSocket lets a test close the connection of a page, and suppress what it receives. The second
// JOIN_ROOM fails.
const controlSocket = `void (window.WebSocket = class extends WebSocket {
	static joins = 0;
	constructor(...args) {
		super(...args);
		WebSocket.latest = this;
	}
	set onmessage(f) {
		super.onmessage = f && ((event) => {
			if (WebSocket.isDeaf) return;
			const message = JSON.parse(event.data);
			if (message.type !== "ROOM_JOINED" || ++WebSocket.joins !== 2) return f(event);
			const payload = { code: "UNAVAILABLE", message: "not yet", retryable: true };
			f(new MessageEvent("message", { data: JSON.stringify({ ...message, type: "RPC_ERROR", payload }) }));
		});
	}
})`

// openTwoNodes opens the pages of ann and bob, who both join the garden. Bob's page connects to the
// first node, and to the second one after it has reconnected.
func openTwoNodes(t *testing.T, browser context.Context) (ann, bob *page, disconnect, reconnect func()) {
	t.Helper()
	one, two := startTwoNodes(t, "-capacity=1000", "-refill=1000")
	nodes := startConnector(t, one)
	ann, bob = openPage(browser, t, one.URL(), desktop), openPage(browser, t, nodes.url, desktop)
	bob.Expect("network error: WebSocket connection to")
	eval[chromedp.Void](bob, controlSocket)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	disconnect = func() {
		nodes.current.Store(nil)
		eval[chromedp.Void](bob, `WebSocket.latest.close()`)
		bob.WaitFor(connectionState + ` === "Reconnecting"`)
	}
	reconnect = func() {
		nodes.use(two)
		eval[chromedp.Void](bob, `document.querySelector("#reconnect-now").click()`)
		bob.WaitFor(hasJoined)
	}
	return ann, bob, disconnect, reconnect
}

func testMissedMessagesAreShownOnce(t *testing.T, browser context.Context) {
	ann, bob, disconnect, reconnect := openTwoNodes(t, browser)
	ann.say("first")
	bob.WaitEqual(conversation, []string{"ann: first"})
	eval[chromedp.Void](bob, `void (WebSocket.isDeaf = true)`)
	bob.Do(chromedp.Focus(chromedp.ID("text")))
	bob.press("from bob" + kb.Enter)
	ann.WaitEqual(conversation, []string{"You: first", "bob: from bob"})
	disconnect()
	bob.WaitEqual(conversation, []string{"ann: first", "You: from bob (unconfirmed)"})
	ann.say("second")
	ann.say("third")
	eval[chromedp.Void](bob, `void (WebSocket.isDeaf = false)`)
	reconnect()
	ann.say("fourth")
	bob.WaitEqual(conversation, []string{"ann: first", "You: from bob", "ann: second", "ann: third", "ann: fourth"})
	assert.Zero(t, eval[int](bob, lostNotes))
	assert.Equal(t, 3, eval[int](bob, `WebSocket.joins`))
}

func testLostMessagesAreIndicated(t *testing.T, browser context.Context) {
	ann, bob, disconnect, reconnect := openTwoNodes(t, browser)
	ann.say("first")
	bob.WaitEqual(conversation, []string{"ann: first"})
	disconnect()
	for range 4 { // more than the history keeps
		ann.click("#send-burst")
	}
	ann.WaitFor(`[...document.querySelectorAll("[data-kind=burst]")].filter((li) => li.dataset.delivered === "30").length === 4`)
	ann.say("last")
	reconnect()
	bob.WaitFor(conversation + `.at(-1) === "ann: last"`)
	assert.Equal(t, 1, eval[int](bob, lostNotes))
	assert.Equal(t, 1+shownMessages, eval[int](bob, conversation+`.length`))
	bob.checkScreen("lost-messages")
	ann.say("and on")
	bob.WaitFor(conversation + `.at(-1) === "ann: and on"`)
	assert.Equal(t, 2+shownMessages, eval[int](bob, conversation+`.length`))
}
