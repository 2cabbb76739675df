package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// JavaScript expressions for what a page shows.
const (
	// A message is like "ann: hi"; own messages are by "You".
	conversation = `[...document.querySelectorAll("[data-kind=message]")].map((li) =>
		[".author", ".text"].map((part) => li.querySelector(part).textContent).join(": ") + (li.dataset.state === "sent" ? "" : " (" + li.dataset.state + ")"))`
	people           = `[...document.querySelectorAll("#people li")].map((li) => [...li.children].slice(1).map((part) => part.textContent).join(", "))`
	connectionState  = `document.querySelector("#status").innerText`
	hasJoined        = `document.querySelector("#composer").dataset.state === "ready"`
	typedText        = `document.querySelector("#text").value`
	lastNoteAboutBob = `[...document.querySelectorAll("[data-kind=note]")].map((li) => li.textContent).findLast((text) => text.startsWith("bob"))`
	isSigningIn      = `document.querySelector("#signin").checkVisibility()`
)

// TestPage tests the page in Chromium. The subtests share one browser, but no pages.
func TestPage(t *testing.T) {
	browser := startBrowser(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"messages reach both users", testMessagesReachBothUsers},
		{"rejected messages show a countdown", testRejectedMessageShowsCountdown},
		{"phone layout fits", testPhoneLayoutFits},
		{"reconnects after server restart", testReconnectsAfterServerRestart},
		{"join event before join reply is kept", testJoinEventBeforeReplyIsKept},
		{"last of several room changes wins", testLastRoomChangeWins},
		{"rejected text is not confused with same text of others", testSameTextOfOthersIsNotOwn},
		{"heartbeat detects silent connection", testHeartbeatDetectsSilentConnection},
		{"markup is shown as text", testMarkupIsShownAsText},
		{"keyboard reaches every control", testKeyboardReachesEveryControl},
		{"keyboard opens and closes the drawer", testKeyboardOpensDrawer},
		{"reload keeps the user in the room", testReloadKeepsUserInRoom},
		{"two tabs of a user share the conversation", testTwoTabsShareConversation},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, browser) })
	}
}

func TestPage_WithoutBrowserSkipsOrFails(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, tt := range []struct{ ci, require, want string }{
		{"", "", "--- SKIP: "},
		{"true", "", "--- FAIL: "},
		{"", "1", "--- FAIL: "},
	} {
		cmd := exec.Command(self, "-test.run=^TestPage$", "-test.v")
		cmd.Env = append(os.Environ(), "PATH=", "CI="+tt.ci, "PENSTOCK_REQUIRE_CHROMIUM="+tt.require)
		out, err := cmd.Output()
		assert.Equal(t, tt.want == "--- SKIP: ", err == nil, "%+v", tt)
		assert.Contains(t, string(out), tt.want+"TestPage")
		assert.Equal(t, 1, strings.Count(string(out), "no chromium in PATH; install it"), "%s", out)
	}
}

func testMessagesReachBothUsers(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	ann.checkScreen("sign-in")
	ann.signIn("ann", "garden")
	ann.waitEqual(people, []string{"ann, you"})
	ann.checkScreen("empty-room")
	bob.signIn("bob", "garden")

	ann.say("Are the tomatoes ripe?")
	bob.waitEqual(conversation, []string{"ann: Are the tomatoes ripe?"})
	bob.say("On Friday, I think.")
	bob.say("The beans are.")
	ann.waitEqual(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are."})
	ann.say("Beans it is.")
	bob.waitEqual(conversation, []string{"ann: Are the tomatoes ripe?", "You: On Friday, I think.", "You: The beans are.", "ann: Beans it is."})
	ann.waitEqual(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are.", "You: Beans it is."})
	ann.waitEqual(people, []string{"ann, you", "bob"})
	bob.waitEqual(people, []string{"ann", "bob, you"})
	assert.True(t, eval[bool](ann, `document.querySelector("[data-user=bob] .author").checkVisibility()`), "the author is visible")
	ann.checkScreen("conversation")
}

// countdown records in window.countdown when the page starts to show a countdown (from), the
// texts that it shows, and when it ends (to). from and to are milliseconds.
const countdown = `(() => {
	const record = window.countdown = { from: 0, shown: [], to: 0 };
	const box = document.querySelector("#send-countdown");
	new MutationObserver(() => {
		if (box.hidden) record.to ||= performance.now();
		else record.shown.push(box.innerText.trim());
		record.from ||= performance.now();
	}).observe(box, { subtree: true, childList: true, attributeFilter: ["hidden"] });
})()`

func testRejectedMessageShowsCountdown(t *testing.T, browser context.Context) {
	chat := startProgram(t, "-capacity=4", "-refill=1")
	ann, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	ann.signIn("ann", "waterworks")
	bob.signIn("bob", "waterworks")
	bob.say("Good morning! Is the water on?")
	ann.say("Since six. The new valve holds.")
	bob.say("Then please open the gate to the lower field.")
	ann.say("Opening it, and now I shall tell you about every single drop:")
	bob.waitEqual(conversation+".length", 4)

	ann.sendUntilRejected()
	ann.screenshot("rejected")
	ann.press("splash")
	assert.True(t, eval[bool](ann, enterKeepsText))
	ann.waitFor(`countdown.to > 0`)
	ann.press(kb.Enter)
	ann.waitFor(`!document.querySelector("[data-state=pending]")`)
	ann.waitEqual(conversation+".slice(-2)", []string{"You: drip (rejected)", "You: splash"})
	ann.checkCountdown()
	ann.checkScreen("rejected-and-admitted")
	admitted := eval[int](ann, `document.querySelectorAll("[data-state=sent]").length`)
	bob.waitEqual(conversation+".length", admitted)

	for eval[bool](ann, `document.querySelector("[data-state=rejected]") !== null`) {
		ann.waitFor(hasJoined)
		ann.click(`[data-action="retry"]`)
		ann.waitFor(`!document.querySelector("[data-state=pending]")`)
	}
	bob.waitEqual(conversation+".at(-1)", "ann: drip")
	ann.waitEqual(conversation+".at(-1)", "You: drip")
}

// enterKeepsText reports whether Enter during the countdown keeps the text instead of
// sending it. It is also true if the countdown has ended.
const enterKeepsText = `(() => {
	if (document.querySelector("#send-countdown").hidden) return true;
	document.querySelector("#composer").requestSubmit();
	return document.querySelector("#text").value === "splash";
})()`

// sendUntilRejected sends messages until one is rejected with a wait of at least 0.3 s.
func (p *page) sendUntilRejected() {
	p.t.Helper()
	for {
		eval[chromedp.Void](p, countdown)
		for eval[bool](p, `countdown.from === 0`) {
			p.press("drip" + kb.Enter)
			p.waitFor(`!document.querySelector("[data-state=pending]")`)
		}
		if eval[bool](p, `parseFloat(countdown.shown[0].match(/[0-9.]+/)) >= .3`) {
			return
		}
		p.waitFor(hasJoined)
	}
}

func (p *page) checkCountdown() {
	p.t.Helper()
	record := eval[struct {
		From, To float64
		Shown    []string
	}](p, "countdown")
	var waits []float64
	for _, text := range record.Shown {
		var wait float64
		_, err := fmt.Sscanf(text, "Retry in %f s", &wait)
		require.NoError(p.t, err, text)
		assert.Positive(p.t, wait, "the countdown ends before it shows 0")
		waits = append(waits, wait)
	}
	assert.IsNonIncreasing(p.t, waits)
	assert.Less(p.t, waits[len(waits)-1], waits[0], "the shown wait decreases")
	took := (record.To - record.From) / 1000
	assert.GreaterOrEqual(p.t, took, waits[0]-.2, "the shown wait is too long; tolerated are rounding up and a late first record")
	assert.LessOrEqual(p.t, took, waits[0]+1, "the shown wait is too short; tolerated is a busy machine")
}

// earlyJoinEvent makes the page receive a USER_JOINED event before every ROOM_JOINED reply.
const earlyJoinEvent = `void (window.WebSocket = class extends WebSocket {
	constructor(...args) {
		super(...args);
		this.addEventListener("message", ({ data }) => {
			if (!data.includes('"ROOM_JOINED"')) return;
			this.dispatchEvent(new MessageEvent("message", { data: '{"type":"USER_JOINED","payload":{"room":"garden","user":"zoe"}}' }));
		});
	}
})`

func testJoinEventBeforeReplyIsKept(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann := openPage(browser, t, chat.url(), desktop)
	ann.expectedProblem = connectionRefused(chat, "ann")
	eval[chromedp.Void](ann, earlyJoinEvent)
	ann.signIn("ann", "garden")
	ann.waitEqual(people, []string{"ann, you", "zoe"})
	chat.stop()
	ann.waitFor(connectionState + ` === "Reconnecting"`)
	require.True(t, chat.start())
	ann.waitFor(hasJoined)
	ann.waitEqual(people, []string{"ann, you", "zoe"})
}

// delayed makes the page receive every message window.delayMs milliseconds late.
const delayed = `void (window.WebSocket = class extends WebSocket {
	set onmessage(f) { super.onmessage = (e) => setTimeout(() => f(e), window.delayMs ?? 0); }
})`

func (p *page) delayMessages(milliseconds int) {
	p.t.Helper()
	eval[chromedp.Void](p, fmt.Sprintf("void (window.delayMs = %d)", milliseconds))
}

func (p *page) switchRoom(room string) {
	p.t.Helper()
	p.fill("switch-room", room)
	p.press(kb.Enter)
}

func testLastRoomChangeWins(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	eval[chromedp.Void](ann, delayed)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "shed")
	ann.delayMessages(1000)
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.waitEqual(`document.querySelector("#room-name").textContent`, "#pond")
	bob.waitEqual(people, []string{"bob, you"})
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.waitFor(hasJoined)
	ann.waitEqual(`document.querySelector("#room-name").textContent`, "#pond")
	bob.waitEqual(people, []string{"bob, you"})
}

// A guest does not know its own name, so the page recognizes own messages by their text.
func testSameTextOfOthersIsNotOwn(t *testing.T, browser context.Context) {
	chat := startProgram(t, "-capacity=1", "-refill=1")
	guest, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	eval[chromedp.Void](guest, delayed)
	guest.signIn("", "garden")
	bob.signIn("bob", "garden")
	guest.waitFor(hasJoined)
	guest.delayMessages(1000)
	guest.do(chromedp.Focus(chromedp.ID("text")))
	guest.press("one" + kb.Enter)
	bob.say("+1")
	guest.press("+1" + kb.Enter)
	guest.waitFor(`!document.querySelector("[data-state=pending]")`)
	guest.waitEqual(conversation, []string{"You: one", "You: +1 (rejected)", "bob: +1"})
}

// The test shortens the heartbeat timers to a twentieth.
func testHeartbeatDetectsSilentConnection(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann := openPage(browser, t, chat.url(), desktop)
	eval[chromedp.Void](ann, `void (window.setTimeout = ((real) => (f, ms) => real(f, ms === 25_000 || ms === 10_000 ? ms / 20 : ms))(window.setTimeout))`)
	eval[chromedp.Void](ann, `void (window.WebSocket = class extends WebSocket {
		set onmessage(f) { super.onmessage = (e) => window.isSilent || f(e); }
		send(data) { window.heartbeats = (window.heartbeats ?? 0) + data.includes("__heartbeat"); if (!window.isSilent) super.send(data); }
	})`)
	ann.signIn("ann", "garden")
	ann.waitFor("window.heartbeats > 1")
	assert.Equal(t, "Online", eval[string](ann, connectionState), "an idle server answers heartbeats")
	eval[chromedp.Void](ann, "void (window.isSilent = true)")
	ann.waitFor(connectionState + ` === "Reconnecting"`)
	eval[chromedp.Void](ann, "void (window.isSilent = false)")
	ann.waitFor(hasJoined)
}

// connectionRefused returns the start of the console error for a failed connection attempt.
// The rest differs: the server may be down, close the connection, or reject it while it
// shuts down.
func connectionRefused(chat *program, name string) string {
	return "network error: WebSocket connection to 'ws://" + chat.addr + "/ws?access_token=" + name +
		"' failed: "
}

func testReconnectsAfterServerRestart(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob, eve := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), phone)
	pages := []*page{ann, bob, eve}
	for i, name := range []string{"ann", "bob", "eve"} {
		p := pages[i] // ann joins before bob, because the test expects her to see bob join
		p.expectedProblem = connectionRefused(chat, name)
		p.signIn(name, "garden")
		eval[chromedp.Void](p, `window.isSamePage = true`)
	}
	ann.say("before")
	bob.waitEqual(conversation, []string{"ann: before"})

	chat.stop()
	ann.waitFor(connectionState + ` === "Reconnecting"`)
	ann.press("unsent")
	node := startNode(t, "-addr="+chat.addr)
	for _, p := range pages {
		p.waitFor(hasJoined)
		p.waitEqual(`document.querySelectorAll("#people li").length`, 3)
	}
	ann.waitEqual(lastNoteAboutBob, "bob joined")
	assert.Equal(t, "unsent", eval[string](ann, typedText))
	ann.press(kb.Enter)
	bob.waitEqual(conversation, []string{"ann: before", "ann: unsent"})

	node.kill()
	ann.waitFor(`document.querySelector("#connection").checkVisibility() && ` + connectionState + ` === "Reconnecting"`)
	ann.checkScreen("reconnecting")
	eve.checkScreen("reconnecting-phone")
	bob.do(chromedp.Navigate("about:blank"))
	require.True(t, chat.start())
	ann.waitFor(hasJoined)
	eve.waitFor(hasJoined)
	ann.waitEqual(people, []string{"ann, you", "eve"})
	eve.waitEqual(people, []string{"ann", "eve, you"})
	ann.waitEqual(lastNoteAboutBob, "bob left")
	eve.say("after")
	ann.waitEqual(conversation, []string{"You: before", "You: unsent", "eve: after"})
	assert.False(t, eval[bool](ann, `document.querySelector("#connection").checkVisibility()`))
	assert.True(t, eval[bool](ann, `isSamePage`) && eval[bool](eve, `isSamePage`), "the page reconnects without a reload")
}

func testMarkupIsShownAsText(t *testing.T, browser context.Context) {
	const image, script = `<img src=x onerror=alert(1)>`, `<script>alert(1)</script>`
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	ann.fill("name", image)
	ann.press(kb.Enter)
	ann.waitFor(`document.querySelector("#name-error").textContent !== "" && ` + isSigningIn)
	ann.checkScreen("invalid-name")
	ann.signIn("ann", script)
	bob.signIn("bob", script)
	ann.say(image)
	ann.say(script)
	bob.waitEqual(conversation, []string{"ann: " + image, "ann: " + script})
	ann.waitEqual(conversation, []string{"You: " + image, "You: " + script})
	bob.fill("search-query", "<")
	bob.press(kb.Enter)
	bob.waitEqual(`[...document.querySelectorAll("#search-results .text")].map((p) => p.textContent)`, []string{image, script})
	bob.waitEqual(`document.querySelector("#room-name").textContent`, "#"+script)
	bob.checkScreen("markup")

	bob.fill("switch-room", image)
	bob.press(kb.Enter)
	bob.waitEqual(`document.title`, "#"+image+" - Penstock chat")
	ann.waitEqual(people, []string{"ann, you"})
	for _, p := range []*page{ann, bob} {
		assert.Zero(t, eval[int](p, `document.querySelectorAll("[onerror], body script, #conversation img, #side img").length`))
	}
}

func testReloadKeepsUserInRoom(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	ann.say("before")
	bob.waitEqual(conversation, []string{"ann: before"})
	bob.do(chromedp.Reload())
	bob.waitFor(hasJoined)
	bob.waitEqual(conversation, []string{"ann: before"})
	bob.waitEqual(people, []string{"ann", "bob, you"})
	bob.say("after")
	ann.waitEqual(conversation, []string{"You: before", "bob: after"})
	ann.waitEqual(people, []string{"ann, you", "bob"})

	bob.do(chromedp.Navigate("about:blank"))
	ann.waitEqual(people, []string{"ann, you"})
	eval[chromedp.Void](bob, "setTimeout(() => history.back())") // delayed, because the evaluation fails if the page goes away
	ann.waitEqual(people, []string{"ann, you", "bob"})
	bob.do(chromedp.Navigate(chat.url()))
	bob.waitFor(hasJoined)
	bob.waitEqual(conversation, []string{"ann: before", "You: after"})

	bob.click("#signout")
	ann.waitEqual(people, []string{"ann, you"})
	bob.do(chromedp.Reload())
	assert.True(t, eval[bool](bob, isSigningIn), "the user stays signed out after a reload")
}

func testTwoTabsShareConversation(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	one, bob := openPage(browser, t, chat.url(), desktop), openPage(browser, t, chat.url(), desktop)
	one.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	two := one.openTab(chat.url(), desktop)
	two.press(kb.Enter) // the form remembers the name and the room
	two.waitFor(hasJoined)
	one.say("from one")
	two.waitEqual(conversation, []string{"You: from one"})
	two.say("from two")
	one.waitEqual(conversation, []string{"You: from one", "You: from two"})
	bob.waitEqual(conversation, []string{"ann: from one", "ann: from two"})
	two.do(chromedp.Navigate("about:blank"))
	bob.say("still there?")
	one.waitEqual(conversation, []string{"You: from one", "You: from two", "bob: still there?"})
	bob.waitEqual(people, []string{"ann", "bob, you"})
	one.do(chromedp.Navigate("about:blank"))
	bob.waitEqual(people, []string{"bob, you"})
}
