package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
