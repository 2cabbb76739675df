package chatpage_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
)

const nameError = `document.querySelector("#name-error").textContent`

// recordSockets records in WebSocket.opened and WebSocket.closed when the page opens a connection
// and when the connection is closed, in milliseconds, and the codes of the close frames in
// WebSocket.codes.
const recordSockets = `void (window.WebSocket = class extends WebSocket {
	static opened = [];
	static closed = [];
	static codes = [];
	constructor(...args) {
		super(...args);
		WebSocket.opened.push(performance.now());
		this.addEventListener("close", ({ code }) => {
			WebSocket.closed.push(performance.now());
			WebSocket.codes.push(code);
		});
	}
})`

func testRejectedTokenIsShownOnForm(t *testing.T, browser context.Context) {
	ann := openPage(browser, t, startProgram(t).URL(), desktop)
	eval[chromedp.Void](ann, recordSockets)
	ann.fill("name", "ann smith")
	ann.fill("room", "garden")
	ann.press(kb.Enter)
	ann.WaitEqual(nameError, "Use NAME or TENANT:NAME with 1 to 32 characters of A-Z a-z 0-9 _ . - each.")
	assert.True(t, eval[bool](ann, isSigningIn))
	assert.Equal(t, "name", eval[string](ann, focused))
	assert.Equal(t, "true", eval[string](ann, `document.querySelector("#name").ariaInvalid`))
	ann.checkScreen("rejected-token")
	ann.signIn("ann", "garden")
	assert.Empty(t, eval[string](ann, nameError))
	assert.Equal(t, []int{4401}, eval[[]int](ann, `WebSocket.codes`), "the page connects again only when the user signs in")
}

func testTooManyConnections(t *testing.T, browser context.Context) {
	url := startProgram(t, "-max-connections=1").URL()
	one, two := openPage(browser, t, url, desktop), openPage(browser, t, url, desktop)
	one.signIn("ann", "garden")
	eval[chromedp.Void](two, recordSockets)
	two.fill("name", "ann")
	two.fill("room", "garden")
	two.press(kb.Enter)
	two.WaitFor(connectionState + ` === "Reconnecting"`)
	two.WaitEqual(`document.querySelector("#connection-reason").textContent`, "Too many connections.")
	two.checkScreen("too-many-connections")
	one.click("#signout")
	two.WaitFor(hasJoined)
	assert.Equal(t, 4429, eval[int](two, `WebSocket.codes[0]`))
	assert.GreaterOrEqual(t, eval[float64](two, `WebSocket.opened[1] - WebSocket.closed[0]`), 4990., "the server asks for 5 s")
}

// testMovesToAnotherNode shuts down the node behind a load balancer, which selects the other one.
func testMovesToAnotherNode(t *testing.T, browser context.Context) {
	one, two := startTwoNodes(t)
	nodes := startConnector(t, one)
	ann := openPage(browser, t, nodes.url, desktop)
	eval[chromedp.Void](ann, recordSockets)
	eval[chromedp.Void](ann, `void new MutationObserver(() => {
		window.wasLost ||= document.querySelector("#connection").checkVisibility();
	}).observe(document.body, { subtree: true, childList: true, attributes: true })`)
	ann.signIn("ann", "garden")
	ann.say("before")
	ann.press("unsent")
	nodes.use(two)
	one.Stop()

	ann.WaitFor(hasJoined)
	ann.WaitEqual(`WebSocket.codes`, []int{1000}) // the page leaves before the server closes the connection
	assert.EqualValues(t, 1, metric(t, two, connections))
	assert.False(t, eval[bool](ann, `window.wasLost === true`), "the page showed a lost connection")
	assert.Equal(t, "unsent", eval[string](ann, typedText))
	ann.press(kb.Enter)
	ann.WaitEqual(conversation, []string{"You: before", "You: unsent"})
}

// testTypingAbortsSearch cuts the answers of Redis off, so that the server waits for the history.
func testTypingAbortsSearch(t *testing.T, browser context.Context) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	node := startProgram(t, withMetrics, "-redis=redis://"+proxy.Addr)
	ann := openPage(browser, t, node.URL(), desktop)
	ann.signIn("ann", "garden")
	ann.say("The tomatoes are ripe.")
	proxy.StallReplies()
	ann.fill("search-query", "tom")
	ann.press(kb.Enter)
	waitMetric(t, node, "penstock_calls_in_flight", 1)
	const status = `document.querySelector("#search-status").textContent`
	assert.Equal(t, "Searching…", eval[string](ann, status))
	ann.press("a")
	waitMetric(t, node, `penstock_messages_total{code="CANCELLED",type="SEARCH_HISTORY"}`, 1)
	assert.Empty(t, eval[string](ann, status))
	proxy.Restore()
	ann.press(kb.Enter)
	ann.WaitEqual(status, "1 match")
	assert.False(t, eval[bool](ann, `document.querySelector("#notice").checkVisibility()`))
}
