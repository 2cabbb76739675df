package chatpage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordPace records the texts of the countdown in window.shown, and the number of messages that
// the server has rejected in window.rejections.
const recordPace = `(() => {
	window.shown = [];
	window.rejections = 0;
	const box = document.querySelector("#send-countdown");
	new MutationObserver(() => box.hidden || shown.push(box.innerText.trim()))
		.observe(box, { subtree: true, childList: true, attributeFilter: ["hidden"] });
	window.WebSocket = class extends WebSocket {
		set onmessage(f) {
			super.onmessage = f && ((event) => {
				rejections += event.data.includes("RESOURCE_EXHAUSTED");
				f(event);
			});
		}
	};
})()`

// The bucket of a user may be shared with other tabs, so the page begins below the limit.
func testFloodIsSentInOrderAtAllowedRate(t *testing.T, browser context.Context) {
	chat := startProgram(t, "-capacity=4", "-refill=2")
	ann, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	eval[chromedp.Void](ann, recordPace)
	ann.signIn("ann", "waterworks")
	bob.signIn("bob", "waterworks")
	bob.say("How many drops per second?")

	var own, received []string
	ann.flood("drop", 9)
	for n := range 9 {
		own = append(own, fmt.Sprint("You: drop ", n))
		received = append(received, fmt.Sprint("ann: drop ", n))
	}
	ann.WaitFor(`document.querySelector("#send-countdown").checkVisibility() && document.querySelectorAll("[data-state=pending]").length > 1`)
	assert.True(t, eval[bool](ann, hasJoined), "the user can write on")
	ann.checkScreen("paced")
	assert.Equal(t, "Messages wait for the rate limit.", eval[string](ann, `document.querySelector("#announce").textContent`))
	ann.WaitFor(`!document.querySelector("[data-state=pending]")`)
	bob.WaitEqual(conversation+".slice(1)", received)
	ann.WaitEqual(conversation+".slice(1)", own)
	assert.Zero(t, eval[int](ann, "rejections"))
	ann.WaitFor(`!document.querySelector("#send-countdown").checkVisibility()`)
	ann.checkWaits()
}

// flood sends several messages at once.
func (p *page) flood(text string, count int) {
	p.T.Helper()
	eval[chromedp.Void](p, fmt.Sprintf(`void (() => {
		for (let n = 0; n < %d; n++) {
			document.querySelector("#text").value = %q + " " + n;
			document.querySelector("#composer").requestSubmit();
		}
	})()`, count, text))
}

// checkWaits checks the texts of the countdown.
func (p *page) checkWaits() {
	p.T.Helper()
	shown := eval[[]string](p, "shown")
	require.NotEmpty(p.T, shown)
	for _, text := range shown {
		var wait float64
		_, err := fmt.Sscanf(text, "Next message in %f s", &wait)
		require.NoError(p.T, err, text)
		assert.Positive(p.T, wait, "the countdown never shows 0")
		assert.LessOrEqual(p.T, wait, 0.6, "a token returns after half a second")
	}
}

// A guest does not know its own name, so the page recognizes own messages by their ID.
func testSameTextOfOthersIsNotOwn(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	guest, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	eval[chromedp.Void](guest, delayed)
	guest.signIn("", "garden")
	bob.signIn("bob", "garden")
	guest.WaitFor(hasJoined)
	guest.delayMessages(1000)
	guest.Do(chromedp.Focus(chromedp.ID("text")))
	guest.press("one" + kb.Enter)
	bob.say("+1")
	guest.press("+1" + kb.Enter)
	guest.WaitFor(`!document.querySelector("[data-state=pending]")`)
	guest.WaitEqual(conversation, []string{"You: one", "bob: +1", "You: +1"})
}
