package chatpage_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/testscale"
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
	testscale.FullOnly(t, "TestServer_AnswersWhatThePageSends")
	browser := browsertest.Start(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"messages reach both users", testMessagesReachBothUsers},
		{"a flood is sent in order at the allowed rate", testFloodIsSentInOrderAtAllowedRate},
		{"phone layout fits", testPhoneLayoutFits},
		{"reconnects after server restart", testReconnectsAfterServerRestart},
		{"missed messages are shown once", testMissedMessagesAreShownOnce},
		{"lost messages are indicated", testLostMessagesAreIndicated},
		{"join event before join reply is kept", testJoinEventBeforeReplyIsKept},
		{"last of several room changes wins", testLastRoomChangeWins},
		{"own text is not confused with same text of others", testSameTextOfOthersIsNotOwn},
		{"markup is shown as text", testMarkupIsShownAsText},
		{"rejected token is shown on the sign-in form", testRejectedTokenIsShownOnForm},
		{"too many connections are shown until the server permits a retry", testTooManyConnections},
		{"moves to another node when the server asks for it", testMovesToAnotherNode},
		{"typing aborts a search", testTypingAbortsSearch},
		{"keyboard reaches every control", testKeyboardReachesEveryControl},
		{"keyboard opens and closes the drawer", testKeyboardOpensDrawer},
		{"reload keeps the user in the room", testReloadKeepsUserInRoom},
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
		cmd.Env = append(os.Environ(), "PATH=", "CI="+tt.ci, "PENSTOCK_REQUIRE_CHROMIUM="+tt.require, testscale.Variable+"=full")
		out, err := cmd.Output()
		assert.Equal(t, tt.want == "--- SKIP: ", err == nil, "%+v", tt)
		assert.Contains(t, string(out), tt.want+"TestPage")
		assert.Equal(t, 1, strings.Count(string(out), "no chromium in PATH; install it"), "%s", out)
	}
}

func testMessagesReachBothUsers(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	ann.checkScreen("sign-in")
	ann.signIn("ann", "garden")
	ann.WaitEqual(people, []string{"ann, you"})
	ann.checkScreen("empty-room")
	bob.signIn("bob", "garden")

	ann.say("Are the tomatoes ripe?")
	bob.WaitEqual(conversation, []string{"ann: Are the tomatoes ripe?"})
	bob.say("On Friday, I think.")
	bob.say("The beans are.")
	ann.WaitEqual(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are."})
	ann.say("Beans it is.")
	bob.WaitEqual(conversation, []string{"ann: Are the tomatoes ripe?", "You: On Friday, I think.", "You: The beans are.", "ann: Beans it is."})
	ann.WaitEqual(conversation, []string{"You: Are the tomatoes ripe?", "bob: On Friday, I think.", "bob: The beans are.", "You: Beans it is."})
	ann.WaitEqual(people, []string{"ann, you", "bob"})
	bob.WaitEqual(people, []string{"ann", "bob, you"})
	assert.True(t, eval[bool](ann, `document.querySelector("[data-user=bob] .author").checkVisibility()`), "the author is visible")
	ann.checkScreen("conversation")
}

func testMarkupIsShownAsText(t *testing.T, browser context.Context) {
	const image, script = `<img src=x onerror=alert(1)>`, `<script>alert(1)</script>`
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	ann.fill("name", image)
	ann.press(kb.Enter)
	ann.WaitFor(`document.querySelector("#name-error").textContent !== "" && ` + isSigningIn)
	ann.checkScreen("invalid-name")
	ann.signIn("ann", script)
	bob.signIn("bob", script)
	ann.say(image)
	ann.say(script)
	bob.WaitEqual(conversation, []string{"ann: " + image, "ann: " + script})
	ann.WaitEqual(conversation, []string{"You: " + image, "You: " + script})
	bob.fill("search-query", "<")
	bob.press(kb.Enter)
	bob.WaitEqual(`[...document.querySelectorAll("#search-results .text")].map((p) => p.textContent)`, []string{image, script})
	bob.WaitEqual(`document.querySelector("#room-name").textContent`, "#"+script)
	bob.checkScreen("markup")

	bob.fill("switch-room", image)
	bob.press(kb.Enter)
	bob.WaitEqual(`document.title`, "#"+image+" - Penstock chat")
	ann.WaitEqual(people, []string{"ann, you"})
	for _, p := range []*page{ann, bob} {
		assert.Zero(t, eval[int](p, `document.querySelectorAll("[onerror], body script, #conversation img, #side img").length`))
	}
}

func testReloadKeepsUserInRoom(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "garden")
	ann.say("before")
	bob.WaitEqual(conversation, []string{"ann: before"})
	bob.Do(chromedp.Reload())
	bob.WaitFor(hasJoined)
	bob.WaitEqual(conversation, []string{"ann: before"})
	bob.WaitEqual(people, []string{"ann", "bob, you"})
	bob.say("after")
	ann.WaitEqual(conversation, []string{"You: before", "bob: after"})
	ann.WaitEqual(people, []string{"ann, you", "bob"})

	bob.Do(chromedp.Navigate("about:blank"))
	ann.WaitEqual(people, []string{"ann, you"})
	eval[chromedp.Void](bob, "setTimeout(() => history.back())") // delayed, because the evaluation fails if the page goes away
	ann.WaitEqual(people, []string{"ann, you", "bob"})
	bob.Do(chromedp.Navigate(chat.URL()))
	bob.WaitFor(hasJoined)
	bob.WaitEqual(conversation, []string{"ann: before", "You: after"})

	bob.click("#signout")
	ann.WaitEqual(people, []string{"ann, you"})
	bob.Do(chromedp.Reload())
	assert.True(t, eval[bool](bob, isSigningIn), "the user stays signed out after a reload")
}
