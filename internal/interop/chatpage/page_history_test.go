package chatpage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
)

const (
	// shownMessages is how many messages of the history a page receives that joins a room for the first time.
	shownMessages = 50

	lostNotes = `[...document.querySelectorAll("[data-kind=note]")].filter((li) => li.textContent === "Some messages may be missing here.").length`
	// recordSent records the number of JOIN_ROOM messages, and the IDs of SAY messages.
	recordSent = `void (window.WebSocket = class extends WebSocket {
		static joins = 0;
		static ids = new Set();
		send(data) {
			const { type, payload } = JSON.parse(data);
			WebSocket.joins += type === "JOIN_ROOM";
			if (type === "SAY") WebSocket.ids.add(payload.id);
			super.send(data);
		}
	})`
)

// Bob's node is cut off from Redis while ann, on another node, sends messages.
func testMessagesDuringOutageAreShown(t *testing.T, browser context.Context) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	one := startProgram(t, "-redis=redis://"+server.Addr)
	two := startProgram(t, "-redis=redis://"+proxy.Addr)
	ann, bob := openPage(browser, t, one.URL(), desktop), openPage(browser, t, two.URL(), desktop)
	eval[chromedp.Void](bob, recordSent)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	ann.say("before")
	bob.WaitEqual(conversation, []string{"ann: before"})

	proxy.Cut()
	ann.say("during the outage")
	ann.say("still during the outage")
	bob.say("from bob")
	bob.WaitFor(`document.querySelector("[data-state=rejected] [data-action=retry], [data-state=unconfirmed] [data-action=retry]")`)
	proxy.Restore()
	bob.WaitFor(conversation + `.at(-1) === "ann: still during the outage"`)
	bob.WaitEqual(people, []string{"ann", "bob, you"})
	for bob.click("[data-action=retry]"); ; bob.click("[data-action=retry]") {
		bob.WaitFor(`!document.querySelector("[data-state=pending]")`)
		if eval[bool](bob, `!document.querySelector("[data-action=retry]")`) {
			break // Redis accepts writes again
		}
	}
	ann.WaitEqual(conversation, []string{"You: before", "You: during the outage", "You: still during the outage", "bob: from bob"})
	bob.WaitEqual(conversation, []string{"ann: before", "ann: during the outage", "ann: still during the outage", "You: from bob"})
	assert.Equal(t, 1, eval[int](bob, `WebSocket.joins`), "the page stays in the room")
	assert.Equal(t, 1, eval[int](bob, `WebSocket.ids.size`), "a retry has the same ID")
	assert.Zero(t, eval[int](bob, lostNotes))
}

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

// receive makes the page receive a message that the server has not sent.
func (p *page) receive(message string) {
	p.T.Helper()
	eval[chromedp.Void](p, fmt.Sprintf(`void WebSocket.latest.dispatchEvent(new MessageEvent("message", { data: %q }))`, message))
}

// The page follows a position that moves without a message. It presents its position again if it
// has missed a message nevertheless.
func testPositionDecidesWhatIsShown(t *testing.T, browser context.Context) {
	ann, bob, _, _ := openTwoNodes(t, browser)
	ann.say("first")
	bob.WaitEqual(conversation, []string{"ann: first"})
	const said = `{"type":"SAID","meta":{"offset":%d},"payload":{"room":"garden","user":"zoe","text":"number %[1]d","id":"%[1]d"}}`
	bob.receive(`{"type":"$ws:position","meta":{},"payload":{"topic":"room/~/shed","epoch":"K7","offset":5,"reset":true}}`)
	bob.receive(fmt.Sprintf(said, 2))
	bob.receive(fmt.Sprintf(said, 2))
	bob.receive(fmt.Sprintf(said, 1))
	bob.WaitEqual(conversation, []string{"ann: first", "zoe: number 2"})
	bob.receive(`{"type":"$ws:position","meta":{},"payload":{"topic":"room/~/garden","epoch":"K7","offset":5}}`)
	assert.Zero(t, eval[int](bob, lostNotes))
	bob.receive(`{"type":"$ws:position","meta":{},"payload":{"topic":"room/~/garden","epoch":"K7","offset":7,"lost":{"from":6,"to":7}}}`)
	bob.WaitEqual(lostNotes, 1)
	bob.receive(fmt.Sprintf(said, 8))
	shown := []string{"ann: first", "zoe: number 2", "zoe: number 8"}
	bob.WaitEqual(conversation, shown)

	bob.receive(fmt.Sprintf(said, 10))
	bob.WaitEqual(lostNotes, 2) // the server does not know the epoch
	ann.say("second")
	bob.WaitEqual(conversation, append(shown, "ann: second"))
	bob.receive(`{"type":"$ws:position","meta":{},"payload":{"topic":"room/~/garden","epoch":"K7","offset":12,"reset":true}}`)
	bob.WaitEqual(lostNotes, 3)
	bob.WaitEqual(`WebSocket.joins`, 4)
	ann.say("third")
	bob.WaitEqual(conversation, append(shown, "ann: second", "ann: third"))
}
