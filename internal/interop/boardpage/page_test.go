package boardpage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// JavaScript expressions for what a page shows.
const (
	shownNotes   = `[...document.querySelectorAll("#notes li")].map((li) => li.textContent)`
	shownMembers = `[...document.querySelectorAll("#members li")].map((li) => li.textContent)`
	shownState   = `document.querySelector("#state").textContent`
	shownLoss    = `document.querySelector("#loss").textContent`
	shownError   = `document.querySelector("#error").textContent`
	typedText    = `document.querySelector("#text").value`
	hasCountdown = `document.querySelector("#post button").disabled && document.querySelector("#limit").textContent.startsWith("Next note in ")`
	isPosting    = `document.querySelector("#text").readOnly`
	canPost      = `!document.querySelector("#post button").disabled`
	rejections   = `WebSocket.rejections`

	// recordRejections counts the messages that a limit of the server has rejected.
	recordRejections = `void (window.WebSocket = class extends WebSocket {
		static rejections = 0;
		constructor(...args) {
			super(...args);
			this.addEventListener("message", ({ data }) => WebSocket.rejections += data.includes('"RESOURCE_EXHAUSTED"'));
		}
	})`

	// recordCountdown records whether the form has waited for a limit.
	recordCountdown = `void new MutationObserver(() => window.hadCountdown ||= ` + hasCountdown + `)
		.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true })`
)

// maxNotes is how many notes the board has.
const maxNotes = 50

// join opens a page and signs in.
func (s *site) join(browser context.Context, path, name string) *page {
	s.t.Helper()
	p := openPage(browser, s.t, "http://"+s.proxy.Addr+"/"+path+"/")
	p.Expect("network error: WebSocket connection to 'ws://" + s.proxy.Addr + "/ws' failed: ")
	eval[chromedp.Void](p, recordRejections)
	p.enter("name", name)
	p.WaitEqual(shownState, "Connected")
	p.WaitEqual(shownMembers+`.includes("`+name+`")`, true)
	return p
}

// post posts a note and waits until the server has accepted it.
func (p *page) post(text string) {
	p.T.Helper()
	p.WaitEqual(canPost, true)
	p.enter("text", text)
	p.WaitEqual(typedText, "")
}

// TestPages tests both pages in Chromium. The subtests share one browser, but no server.
func TestPages(t *testing.T) {
	testscale.FullOnly(t, "TestServer_AnswersWhatThePagesSend")
	browsertest.Program(t)
	pages := buildPages(t)
	browser := browsertest.Start(t)
	for _, path := range []string{"page-ts", "page-react"} {
		for _, tt := range []struct {
			name string
			test func(*testing.T, context.Context, *site, string)
		}{
			{"notes reach both users", testNotesReachBothUsers},
			{"users see who is present", testUsersSeeWhoIsPresent},
			{"missed notes are shown once", testMissedNotesAreShownOnce},
			{"unanswered note is added once", testUnansweredNoteIsAddedOnce},
			{"lost changes are indicated", testLostChangesAreIndicated},
			{"form waits for the limit", testFormWaitsForLimit},
			{"rejected note is sent again", testRejectedNoteIsSentAgain},
			{"rejected name is shown", testRejectedNameIsShown},
			{"one connection", testOneConnection},
		} {
			t.Run(path+"/"+tt.name, func(t *testing.T) { tt.test(t, browser, startSite(t, pages), path) })
		}
	}
	t.Run("leaving closes the connection", func(t *testing.T) { testLeavingClosesConnection(t, browser, startSite(t, pages)) })
}

func testNotesReachBothUsers(t *testing.T, browser context.Context, s *site, path string) {
	ann, bob := s.join(browser, path, "ann"), s.join(browser, path, "bob")
	ann.post("<b>hello</b>")
	bob.post("hi")
	want := []string{"ann: <b>hello</b>", "bob: hi"}
	ann.WaitEqual(shownNotes, want)
	bob.WaitEqual(shownNotes, want)
	late := s.join(browser, path, "zoe")
	late.WaitEqual(shownNotes, want)
	assert.Empty(t, eval[string](ann, shownError))
}

func testUsersSeeWhoIsPresent(t *testing.T, browser context.Context, s *site, path string) {
	ann, bob := s.join(browser, path, "ann"), s.join(browser, path, "bob")
	ann.WaitEqual(shownMembers, []string{"ann", "bob"})
	bob.WaitEqual(shownMembers, []string{"ann", "bob"})
	other := s.join(browser, path, "bob")
	other.WaitEqual(shownMembers, []string{"ann", "bob"})
	for _, p := range []*page{bob, other} {
		p.Do(chromedp.Navigate("about:blank"))
	}
	ann.WaitEqual(shownMembers, []string{"ann"})
}

func testMissedNotesAreShownOnce(t *testing.T, browser context.Context, s *site, path string) {
	ann, bob := s.join(browser, path, "ann"), s.join(browser, path, "bob")
	want := s.publish("before ", 2)
	ann.WaitEqual(shownNotes, want)
	bob.WaitEqual(shownNotes, want)
	for i := range 2 {
		s.proxy.Cut()
		ann.WaitEqual(shownState+`.startsWith("Connected")`, false)
		want = append(want, s.publish(fmt.Sprint("missed ", i, "-"), 20)...)
		s.proxy.Restore()
		want = append(want, s.publish(fmt.Sprint("after ", i, "-"), 3)...)
		for _, p := range []*page{ann, bob} {
			p.WaitEqual(shownState, "Connected")
			p.WaitEqual(shownNotes, want)
			p.WaitEqual(shownMembers, []string{"ann", "bob"})
			assert.Empty(t, eval[string](p, shownLoss), "the history contains all notes")
		}
	}
	last := s.publish("last ", 1)
	for _, p := range []*page{ann, bob} {
		p.WaitEqual(shownNotes, append(want, last...)) // a repetition would precede it
	}
}

func testUnansweredNoteIsAddedOnce(t *testing.T, browser context.Context, s *site, path string) {
	ann := s.join(browser, path, "ann")
	s.proxy.StallReplies()
	ann.enter("text", "hello")
	watcher := s.watch()
	watcher.waitNotes("ann: hello")
	s.proxy.Cut()
	ann.WaitEqual(shownState+`.startsWith("Connected")`, false)
	s.proxy.Restore()
	ann.WaitEqual(typedText, "")
	ann.WaitEqual(shownNotes, []string{"ann: hello"})
	assert.Empty(t, eval[string](ann, shownError))
	want := append([]string{"ann: hello"}, s.publish("last ", 1)...)
	ann.WaitEqual(shownNotes, want) // a repetition would precede it
	watcher.waitNotes(want...)
}

func testLostChangesAreIndicated(t *testing.T, browser context.Context, s *site, path string) {
	ann := s.join(browser, path, "ann")
	want := s.publish("before ", 1)
	ann.WaitEqual(shownNotes, want)
	s.proxy.Cut()
	want = append(want, s.publish("missed ", 101)...) // more than the history
	want = want[len(want)-maxNotes:]
	s.proxy.Restore()
	ann.WaitEqual(shownNotes, want)
	ann.WaitEqual(shownLoss, "Changes were lost. All notes were loaded again.")
	ann.post("hello") // which makes room
	want = append(want[1:], "ann: hello")
	ann.WaitEqual(shownNotes, want)
}

func testFormWaitsForLimit(t *testing.T, browser context.Context, s *site, path string) {
	ann := s.join(browser, path, "ann")
	var want []string
	for len(want) < 20 && !eval[bool](ann, hasCountdown) {
		text := fmt.Sprint("note ", len(want))
		ann.enter("text", text)
		ann.WaitEqual(isPosting, false)
		ann.WaitEqual(typedText, "")
		want = append(want, "ann: "+text)
	}
	require.Less(t, len(want), 20, "the form has never waited")
	ann.enter("text", "later")
	ann.WaitEqual(canPost, true)
	assert.Equal(t, "later", eval[string](ann, typedText), "Enter has no effect while the form waits")
	ann.enter("text", "")
	ann.WaitEqual(shownNotes, append(want, "ann: later"))
	assert.Zero(t, eval[int](ann, rejections))
}

// testRejectedNoteIsSentAgain uses up the limit per user, which the page does not know, on other
// connections of ann. A token may return before the page posts its note, which the test then tries again.
func testRejectedNoteIsSentAgain(t *testing.T, browser context.Context, s *site, path string) {
	ann := s.join(browser, path, "ann")
	ann.post("first")
	eval[chromedp.Void](ann, recordCountdown)
	for attempt := 0; eval[int](ann, rejections) == 0; attempt++ {
		require.Less(t, attempt, 10, "the note was never rejected")
		ann.WaitEqual(canPost, true)
		eval[chromedp.Void](ann, `void (window.hadCountdown = false)`)
		s.useUpLimit("ann")
		ann.enter("text", "second")
		ann.WaitEqual(typedText, "")
		ann.WaitEqual(shownNotes+`.at(-1)`, "ann: second")
	}
	ann.WaitEqual("window.hadCountdown", true)
	ann.WaitEqual(canPost, true)
	ann.WaitEqual(shownNotes+`.at(0)`, "ann: first")
	assert.Empty(t, eval[string](ann, shownError))
	assert.Equal(t, 1, eval[int](ann, rejections))
}

func testRejectedNameIsShown(t *testing.T, browser context.Context, s *site, path string) {
	p := openPage(browser, t, "http://"+s.proxy.Addr+"/"+path+"/")
	p.WaitEqual(`document.querySelector("#name").pattern !== ""`, true)
	eval[chromedp.Void](p, `void document.querySelector("#name").removeAttribute("pattern")`)
	p.enter("name", "ann b")
	p.WaitEqual(shownState, "Disconnected: use a name with 1 to 32 characters of A-Z a-z 0-9 _ . -")
}

// testOneConnection holds for the React page because of its StrictMode, which mounts components twice in builds
// for development.
func testOneConnection(t *testing.T, browser context.Context, s *site, path string) {
	want := s.publish("note ", 3)
	ann := s.join(browser, path, "ann")
	ann.WaitEqual(shownNotes, want)
	ann.post("hello")
	ann.WaitEqual(shownNotes, append(want, "ann: hello"))
	assert.EqualValues(t, 1, s.handshakes.Load())
	assert.EqualValues(t, 1, s.open.Load())
	assert.Equal(t, []string{"ann"}, s.watch().members())
}

func testLeavingClosesConnection(t *testing.T, browser context.Context, s *site) {
	bob, ann := s.join(browser, "page-react", "bob"), s.join(browser, "page-react", "ann")
	ann.post("hello")
	ann.Do(chromedp.Click(chromedp.ID("leave")))
	bob.WaitEqual(shownMembers, []string{"bob"})
	ann.enter("name", "zoe")
	bob.WaitEqual(shownMembers, []string{"bob", "zoe"})
	ann.WaitEqual(shownNotes, []string{"ann: hello"})
	assert.EqualValues(t, 3, s.handshakes.Load())
}
