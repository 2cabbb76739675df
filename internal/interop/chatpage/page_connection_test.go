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

// earlyJoinEvent makes the page receive a USER_JOINED event before every ROOM_JOINED reply.
const earlyJoinEvent = `void (window.WebSocket = class extends WebSocket {
	constructor(...args) {
		super(...args);
		this.addEventListener("message", ({ data }) => {
			if (!data.includes('"ROOM_JOINED"')) return;
			this.dispatchEvent(new MessageEvent("message", { data: '{"type":"USER_JOINED","meta":{},"payload":{"room":"garden","user":"zoe"}}' }));
		});
	}
})`

func testJoinEventBeforeReplyIsKept(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann := openPage(browser, t, chat.URL(), desktop)
	ann.Expect(connectionRefused(chat))
	eval[chromedp.Void](ann, earlyJoinEvent)
	ann.signIn("ann", "garden")
	ann.WaitEqual(people, []string{"ann, you", "zoe"})
	chat.Stop()
	ann.WaitFor(connectionState + ` === "Reconnecting"`)
	chat.Restart()
	ann.WaitFor(hasJoined)
	ann.WaitEqual(people, []string{"ann, you", "zoe"})
}

// delayed makes the page receive every message window.delayMs milliseconds late.
const delayed = `void (window.WebSocket = class extends WebSocket {
	set onmessage(f) { super.onmessage = f && ((e) => setTimeout(() => super.onmessage && f(e), window.delayMs ?? 0)); }
})`

func (p *page) delayMessages(milliseconds int) {
	p.T.Helper()
	eval[chromedp.Void](p, fmt.Sprintf("void (window.delayMs = %d)", milliseconds))
}

func (p *page) switchRoom(room string) {
	p.T.Helper()
	p.fill("switch-room", room)
	p.press(kb.Enter)
}

func testLastRoomChangeWins(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop)
	eval[chromedp.Void](ann, delayed)
	ann.signIn("ann", "garden")
	bob.signIn("bob", "shed")
	ann.delayMessages(1000)
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.WaitEqual(`document.querySelector("#room-name").textContent`, "#pond")
	bob.WaitEqual(people, []string{"bob, you"})
	ann.switchRoom("shed")
	ann.switchRoom("pond")
	ann.WaitFor(hasJoined)
	ann.WaitEqual(`document.querySelector("#room-name").textContent`, "#pond")
	bob.WaitEqual(people, []string{"bob, you"})
}

// connectionRefused returns the start of the console error for a failed connection attempt.
// The rest differs: the server may be down, close the connection, or reject it while it
// shuts down.
func connectionRefused(chat *exampletest.Program) string {
	return "network error: WebSocket connection to 'ws://" + chat.Addr + "/ws' failed: "
}

func testReconnectsAfterServerRestart(t *testing.T, browser context.Context) {
	chat := startProgram(t)
	ann, bob, eve := openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), desktop), openPage(browser, t, chat.URL(), phone)
	pages := []*page{ann, bob, eve}
	for i, name := range []string{"ann", "bob", "eve"} {
		p := pages[i] // ann joins before bob, because the test expects her to see bob join
		p.Expect(connectionRefused(chat))
		p.signIn(name, "garden")
		eval[chromedp.Void](p, `window.isSamePage = true`)
	}
	ann.say("before")
	bob.WaitEqual(conversation, []string{"ann: before"})

	chat.Stop()
	ann.WaitFor(connectionState + ` === "Reconnecting"`)
	ann.press("unsent")
	chat.Restart()
	for _, p := range pages {
		p.WaitFor(hasJoined)
		p.WaitEqual(`document.querySelectorAll("#people li").length`, 3)
	}
	ann.WaitEqual(lastNoteAboutBob, "bob joined")
	assert.Equal(t, "unsent", eval[string](ann, typedText))
	ann.press(kb.Enter)
	bob.WaitEqual(conversation, []string{"ann: before", "ann: unsent"})

	chat.Kill()
	ann.WaitFor(`document.querySelector("#connection").checkVisibility() && ` + connectionState + ` === "Reconnecting"`)
	ann.checkScreen("reconnecting")
	eve.checkScreen("reconnecting-phone")
	bob.Do(chromedp.Navigate("about:blank"))
	chat.Restart()
	ann.WaitFor(hasJoined)
	eve.WaitFor(hasJoined)
	ann.WaitEqual(people, []string{"ann, you", "eve"})
	eve.WaitEqual(people, []string{"ann", "eve, you"})
	ann.WaitEqual(lastNoteAboutBob, "bob left")
	eve.say("after")
	ann.WaitEqual(conversation, []string{"You: before", "You: unsent", "eve: after"})
	assert.False(t, eval[bool](ann, `document.querySelector("#connection").checkVisibility()`))
	assert.True(t, eval[bool](ann, `isSamePage`) && eval[bool](eve, `isSamePage`), "the page reconnects without a reload")
}
