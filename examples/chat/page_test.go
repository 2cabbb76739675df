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

// What a page shows, as JavaScript expressions.
const (
	// A line is like "ann: hi"; the reader is "You".
	conversation = `[...document.querySelectorAll("[data-kind=message]")].map((li) =>
		[".author", ".text"].map((part) => li.querySelector(part).textContent).join(": ") + (li.dataset.state === "sent" ? "" : " (" + li.dataset.state + ")"))`
	people      = `[...document.querySelectorAll("#people li")].map((li) => [...li.children].slice(1).map((part) => part.textContent).join(", "))`
	connection  = `document.querySelector("#status").innerText`
	joined      = `document.querySelector("#composer").dataset.state === "ready"`
	written     = `document.querySelector("#text").value`
	notesOnBob  = `[...document.querySelectorAll("[data-kind=note]")].map((li) => li.textContent).findLast((text) => text.startsWith("bob"))`
	isSigningIn = `document.querySelector("#signin").checkVisibility()`
)

// TestThePage is what people see of the chat, in a real browser.
func TestThePage(t *testing.T) {
	browser := startBrowser(t)
	for _, story := range []struct {
		name string
		tell func(*testing.T, context.Context)
	}{
		{"two people talk", twoPeopleTalk},
		{"one floods", oneFloods},
		{"somebody joins by phone", somebodyJoinsByPhone},
		{"the server restarts", theServerRestarts},
		{"somebody comes before the answer", somebodyComesBeforeTheAnswer},
		{"rooms are changed faster than the server answers", roomsAreChangedFast},
		{"two people say the same", twoPeopleSayTheSame},
		{"the network goes without a word", theNetworkGoesWithoutAWord},
		{"markup stays text", markupStaysText},
		{"a keyboard is enough", aKeyboardIsEnough},
		{"a drawer opens by keyboard", aDrawerOpensByKeyboard},
		{"a reload keeps one in the room", aReloadKeepsOneInTheRoom},
		{"one person has two tabs", onePersonHasTwoTabs},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(t, browser) })
	}
}

func TestWithoutABrowser(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, tt := range []struct{ ci, require, want string }{
		{"", "", "--- SKIP: "},
		{"true", "", "--- FAIL: "},
		{"", "1", "--- FAIL: "},
	} {
		cmd := exec.Command(self, "-test.run=^TestThePage$", "-test.v")
		cmd.Env = append(os.Environ(), "PATH=", "CI="+tt.ci, "PENSTOCK_REQUIRE_CHROMIUM="+tt.require)
		out, err := cmd.Output()
		assert.Equal(t, tt.want == "--- SKIP: ", err == nil, "%+v", tt)
		assert.Contains(t, string(out), tt.want+"TestThePage")
		assert.Equal(t, 1, strings.Count(string(out), "there is no chromium in PATH; install it"), "%s", out)
	}
}

func twoPeopleTalk(t *testing.T, browser context.Context) {
	chat := open(t)
	ann, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	ann.shot("sign-in")
	ann.signIn("ann", "garden")
	ann.shows(people, []string{"ann, you"})
	ann.shot("nothing-said")
	bob.signIn("bob", "garden")

	ann.say("Are the tomatoes ripe?")
	bob.shows(conversation, []string{"ann: Are the tomatoes ripe?"})
	bob.say("On Friday, I think.")
	bob.say("The beans are.")
	ann.shows(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are."})
	ann.say("Beans it is.")
	bob.shows(conversation, []string{"ann: Are the tomatoes ripe?", "You: On Friday, I think.", "You: The beans are.", "ann: Beans it is."})
	ann.shows(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are.", "You: Beans it is."})
	ann.shows(people, []string{"ann, you", "bob"})
	bob.shows(people, []string{"ann", "bob, you"})
	assert.True(t, eval[bool](ann, `document.querySelector("[data-user=bob] .author").checkVisibility()`), "a name stands above")
	ann.shot("two-people")
}

// countdown notes when the page begins to show a refusal, every wait that it
// shows, and when it ends, in milliseconds and in seconds.
const countdown = `(() => {
	const note = window.countdown = { from: 0, shown: [], to: 0 };
	const gate = document.querySelector("#gate");
	new MutationObserver(() => {
		if (gate.hidden) note.to ||= performance.now();
		else note.shown.push(gate.innerText.trim());
		note.from ||= performance.now();
	}).observe(gate, { subtree: true, childList: true, attributeFilter: ["hidden"] });
})()`

func oneFloods(t *testing.T, browser context.Context) {
	chat := open(t, "-capacity=4", "-refill=1")
	ann, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	ann.signIn("ann", "waterworks")
	bob.signIn("bob", "waterworks")
	bob.say("Good morning! Is the water on?")
	ann.say("Since six. The new valve holds.")
	bob.say("Then please open the gate to the lower field.")
	ann.say("Opening it, and now I shall tell you about every single drop:")
	bob.shows(conversation+".length", 4)

	ann.flood()
	ann.picture("refused")
	ann.press("splash")
	assert.True(t, eval[bool](ann, enterIsRefused))
	ann.until(`countdown.to > 0`)
	ann.press(kb.Enter)
	ann.until(`!document.querySelector("[data-state=pending]")`)
	ann.shows(conversation+".slice(-2)", []string{"You: drip (refused)", "You: splash"})
	ann.checkCountdown()
	ann.shot("refused-and-admitted")
	admitted := eval[int](ann, `document.querySelectorAll("[data-state=sent]").length`)
	bob.shows(conversation+".length", admitted)

	for eval[bool](ann, `document.querySelector("[data-state=refused]") !== null`) {
		ann.until(joined)
		ann.click(`[data-action="again"]`)
		ann.until(`!document.querySelector("[data-state=pending]")`)
	}
	bob.shows(conversation+".at(-1)", "ann: drip")
	ann.shows(conversation+".at(-1)", "You: drip")
}

// enterIsRefused is true if a message cannot be sent while the page shows a
// refusal, and is kept.
const enterIsRefused = `(() => {
	if (document.querySelector("#gate").hidden) return true;
	document.querySelector("#composer").requestSubmit();
	return document.querySelector("#text").value === "splash";
})()`

// flood sends messages until one is refused for long enough to be watched.
func (v *visitor) flood() {
	v.t.Helper()
	for {
		eval[chromedp.Void](v, countdown)
		for eval[bool](v, `countdown.from === 0`) {
			v.press("drip" + kb.Enter)
			v.until(`!document.querySelector("[data-state=pending]")`)
		}
		if eval[bool](v, `parseFloat(countdown.shown[0].match(/[0-9.]+/)) >= .3`) {
			return
		}
		v.until(joined)
	}
}

func (v *visitor) checkCountdown() {
	v.t.Helper()
	note := eval[struct {
		From, To float64
		Shown    []string
	}](v, "countdown")
	var waits []float64
	for _, text := range note.Shown {
		var wait float64
		_, err := fmt.Sscanf(text, "Next message in %f s", &wait)
		require.NoError(v.t, err, text)
		assert.Positive(v.t, wait, "it is still refused")
		waits = append(waits, wait)
	}
	assert.IsNonIncreasing(v.t, waits)
	assert.Less(v.t, waits[len(waits)-1], waits[0], "it counts down")
	took := (note.To - note.From) / 1000
	assert.GreaterOrEqual(v.t, took, waits[0]-.2, "it says no more than the wait, but for rounding up and for noting it late")
	assert.LessOrEqual(v.t, took, waits[0]+1, "it says no less than the wait, but for a busy machine")
}

// early has every answer to a join be overtaken by somebody who joins.
const early = `void (window.WebSocket = class extends WebSocket {
	constructor(...args) {
		super(...args);
		this.addEventListener("message", ({ data }) => {
			if (!data.includes('"ROOM_JOINED"')) return;
			this.dispatchEvent(new MessageEvent("message", { data: '{"type":"USER_JOINED","payload":{"room":"garden","user":"zoe"}}' }));
		});
	}
})`

func somebodyComesBeforeTheAnswer(t *testing.T, browser context.Context) {
	chat := open(t)
	ann := visit(browser, t, chat.url(), desktop)
	ann.tolerates = refusedFor(chat, "ann")
	eval[chromedp.Void](ann, early)
	ann.signIn("ann", "garden")
	ann.shows(people, []string{"ann, you", "zoe"})
	chat.stop()
	ann.until(connection + ` === "Reconnecting"`)
	require.True(t, chat.start())
	ann.until(joined)
	ann.shows(people, []string{"ann, you", "zoe"})
}

// slow has what comes from the server take window.lag milliseconds.
const slow = `void (window.WebSocket = class extends WebSocket {
	set onmessage(f) { super.onmessage = (e) => setTimeout(() => f(e), window.lag ?? 0); }
})`

func (v *visitor) lag(milliseconds int) {
	v.t.Helper()
	eval[chromedp.Void](v, fmt.Sprintf("void (window.lag = %d)", milliseconds))
}

func (v *visitor) switchRoom(room string) {
	v.t.Helper()
	v.fill("switch-room", room)
	v.press(kb.Enter)
}

func roomsAreChangedFast(t *testing.T, browser context.Context) {
	chat := open(t)
	ann, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	eval[chromedp.Void](ann, slow)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "shed")
	ann.lag(1000)
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.shows(`document.querySelector("#room-name").textContent`, "#pond")
	bob.shows(people, []string{"bob, you"})
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.until(joined)
	ann.shows(`document.querySelector("#room-name").textContent`, "#pond")
	bob.shows(people, []string{"bob, you"})
}

// twoPeopleSayTheSame while a guest's own is refused.
func twoPeopleSayTheSame(t *testing.T, browser context.Context) {
	chat := open(t, "-capacity=1", "-refill=1")
	guest, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	eval[chromedp.Void](guest, slow)
	guest.signIn("", "garden")
	bob.signIn("bob", "garden")
	guest.until(joined)
	guest.lag(1000)
	guest.do(chromedp.Focus(chromedp.ID("text")))
	guest.press("one" + kb.Enter)
	bob.say("+1")
	guest.press("+1" + kb.Enter)
	guest.until(`!document.querySelector("[data-state=pending]")`)
	guest.shows(conversation, []string{"You: one", "You: +1 (refused)", "bob: +1"})
}

// theNetworkGoesWithoutAWord has silence last shorter.
func theNetworkGoesWithoutAWord(t *testing.T, browser context.Context) {
	chat := open(t)
	ann := visit(browser, t, chat.url(), desktop)
	eval[chromedp.Void](ann, `void (window.setTimeout = ((real) => (f, ms) => real(f, ms === 25_000 || ms === 10_000 ? ms / 20 : ms))(window.setTimeout))`)
	eval[chromedp.Void](ann, `void (window.WebSocket = class extends WebSocket {
		set onmessage(f) { super.onmessage = (e) => window.isDead || f(e); }
		send(data) { window.beats = (window.beats ?? 0) + data.includes("__heartbeat"); if (!window.isDead) super.send(data); }
	})`)
	ann.signIn("ann", "garden")
	ann.until("window.beats > 1")
	assert.Equal(t, "Online", eval[string](ann, connection), "a server that is only silent answers")
	eval[chromedp.Void](ann, "void (window.isDead = true)")
	ann.until(connection + ` === "Reconnecting"`)
	eval[chromedp.Void](ann, "void (window.isDead = false)")
	ann.until(joined)
}

// refusedFor begins what the console shows while a site is down. The site may refuse the
// page, drop it, or answer that it is about to go.
func refusedFor(chat *site, name string) string {
	return "network error: WebSocket connection to 'ws://" + chat.addr + "/ws?access_token=" + name +
		"' failed: "
}

func theServerRestarts(t *testing.T, browser context.Context) {
	chat := open(t)
	ann, bob, eve := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), phone)
	everybody := []*visitor{ann, bob, eve}
	for i, name := range []string{"ann", "bob", "eve"} {
		v := everybody[i] // in this order: ann is told that bob joins
		v.tolerates = refusedFor(chat, name)
		v.signIn(name, "garden")
		eval[chromedp.Void](v, `window.isTheSame = true`)
	}
	ann.say("before")
	bob.shows(conversation, []string{"ann: before"})

	chat.stop()
	ann.until(connection + ` === "Reconnecting"`)
	ann.press("unsent")
	node := startNode(t, "-addr="+chat.addr)
	for _, v := range everybody {
		v.until(joined)
		v.shows(`document.querySelectorAll("#people li").length`, 3)
	}
	ann.shows(notesOnBob, "bob joined")
	assert.Equal(t, "unsent", eval[string](ann, written))
	ann.press(kb.Enter)
	bob.shows(conversation, []string{"ann: before", "ann: unsent"})

	node.kill()
	ann.until(`document.querySelector("#connection").checkVisibility() && ` + connection + ` === "Reconnecting"`)
	ann.shot("reconnecting")
	eve.shot("reconnecting-by-phone")
	bob.do(chromedp.Navigate("about:blank"))
	require.True(t, chat.start())
	ann.until(joined)
	eve.until(joined)
	ann.shows(people, []string{"ann, you", "eve"})
	eve.shows(people, []string{"ann", "eve, you"})
	ann.shows(notesOnBob, "bob left")
	eve.say("after")
	ann.shows(conversation, []string{"You: before", "You: unsent", "eve: after"})
	assert.False(t, eval[bool](ann, `document.querySelector("#connection").checkVisibility()`))
	assert.True(t, eval[bool](ann, `isTheSame`) && eval[bool](eve, `isTheSame`), "nobody had to reload")
}

func markupStaysText(t *testing.T, browser context.Context) {
	const image, script = `<img src=x onerror=alert(1)>`, `<script>alert(1)</script>`
	chat := open(t)
	ann, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	ann.fill("name", image)
	ann.press(kb.Enter)
	ann.until(`document.querySelector("#name-error").textContent !== "" && ` + isSigningIn)
	ann.shot("bad-name")
	ann.signIn("ann", script)
	bob.signIn("bob", script)
	ann.say(image)
	ann.say(script)
	bob.shows(conversation, []string{"ann: " + image, "ann: " + script})
	ann.shows(conversation, []string{"You: " + image, "You: " + script})
	bob.fill("search-query", "<")
	bob.press(kb.Enter)
	bob.shows(`[...document.querySelectorAll("#search-results .text")].map((p) => p.textContent)`, []string{image, script})
	bob.shows(`document.querySelector("#room-name").textContent`, "#"+script)
	bob.shot("markup")

	bob.fill("switch-room", image)
	bob.press(kb.Enter)
	bob.shows(`document.title`, "#"+image+" - Penstock chat")
	ann.shows(people, []string{"ann, you"})
	for _, v := range []*visitor{ann, bob} {
		assert.Zero(t, eval[int](v, `document.querySelectorAll("[onerror], body script, #conversation img, #side img").length`))
	}
}

func aReloadKeepsOneInTheRoom(t *testing.T, browser context.Context) {
	chat := open(t)
	ann, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	ann.say("before")
	bob.shows(conversation, []string{"ann: before"})
	bob.do(chromedp.Reload())
	bob.until(joined)
	bob.shows(conversation, []string{"ann: before"})
	bob.shows(people, []string{"ann", "bob, you"})
	bob.say("after")
	ann.shows(conversation, []string{"You: before", "bob: after"})
	ann.shows(people, []string{"ann, you", "bob"})

	bob.do(chromedp.Navigate("about:blank"))
	ann.shows(people, []string{"ann, you"})
	eval[chromedp.Void](bob, "setTimeout(() => history.back())") // the evaluation must end before the page does
	ann.shows(people, []string{"ann, you", "bob"})
	bob.do(chromedp.Navigate(chat.url()))
	bob.until(joined)
	bob.shows(conversation, []string{"ann: before", "You: after"})

	bob.click("#signout")
	ann.shows(people, []string{"ann, you"})
	bob.do(chromedp.Reload())
	assert.True(t, eval[bool](bob, isSigningIn), "who has signed out stays out")
}

func onePersonHasTwoTabs(t *testing.T, browser context.Context) {
	chat := open(t)
	one, bob := visit(browser, t, chat.url(), desktop), visit(browser, t, chat.url(), desktop)
	one.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	two := one.tab(chat.url(), desktop)
	two.press(kb.Enter) // it remembers who and where
	two.until(joined)
	one.say("from one")
	two.shows(conversation, []string{"You: from one"})
	two.say("from two")
	one.shows(conversation, []string{"You: from one", "You: from two"})
	bob.shows(conversation, []string{"ann: from one", "ann: from two"})
	two.do(chromedp.Navigate("about:blank"))
	bob.say("still there?")
	one.shows(conversation, []string{"You: from one", "You: from two", "bob: still there?"})
	bob.shows(people, []string{"ann", "bob, you"})
	one.do(chromedp.Navigate("about:blank"))
	bob.shows(people, []string{"bob, you"})
}
