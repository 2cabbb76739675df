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
	shownNotes   = `[...document.querySelectorAll("#notes li")].map((li) => li.querySelector(".author").textContent + ": " + li.querySelector(".text").textContent)`
	shownMembers = `[...document.querySelectorAll("#members li")].map((li) => li.textContent)`
	shownState   = `document.querySelector("#state").textContent`
	shownLoss    = `document.querySelector("#loss").textContent`
	shownRefusal = `document.querySelector("#name-error").textContent`
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
			{"lost changes are indicated", testLostChangesAreIndicated},
			{"form waits for the limit", testFormWaitsForLimit},
			{"rejected name is shown", testRejectedNameIsShown},
			{"one connection", testOneConnection},
		} {
			t.Run(path+"/"+tt.name, func(t *testing.T) { tt.test(t, browser, startSite(t, pages), path) })
		}
	}
	axe := axeSource(t)
	for _, path := range []string{"page-ts", "page-react"} {
		t.Run(path+"/fits a phone and is accessible", func(t *testing.T) { testFitsPhone(t, browser, startSite(t, pages), path, axe) })
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

// testFormWaitsForLimit begins again if the wait has ended before the browser pressed Enter.
func testFormWaitsForLimit(t *testing.T, browser context.Context, s *site, path string) {
	ann := s.join(browser, path, "ann")
	var want []string
	for tries := 0; ; tries++ {
		require.Less(t, tries, 5, "Enter has no effect while the form waits")
		for !eval[bool](ann, hasCountdown) {
			require.Less(t, len(want), 50, "the form has never waited")
			text := fmt.Sprint("note ", len(want))
			ann.post(text)
			want = append(want, "ann: "+text)
		}
		want = append(want, "ann: later")
		ann.enter("text", "later")
		ann.WaitEqual(canPost, true)
		if eval[string](ann, typedText) == "later" {
			break
		}
		ann.WaitEqual(isPosting, false)
	}
	ann.enter("text", "")
	ann.WaitEqual(shownNotes, want)
	assert.Zero(t, eval[int](ann, rejections))
}

func testRejectedNameIsShown(t *testing.T, browser context.Context, s *site, path string) {
	p := openPage(browser, t, "http://"+s.proxy.Addr+"/"+path+"/")
	p.WaitEqual(`document.querySelector("#name").pattern !== ""`, true)
	eval[chromedp.Void](p, `void document.querySelector("#name").removeAttribute("pattern")`)
	p.enter("name", "ann b")
	p.WaitEqual(shownRefusal, "use a name with 1 to 32 characters of A-Z a-z 0-9 _ . -")
	eval[chromedp.Void](p, `void (document.querySelector("#name").value = "")`)
	p.enter("name", "ann")
	p.WaitEqual(shownState, "Connected")
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
}

// testFitsPhone fills the board, so that the notes do not fit on the screen.
func testFitsPhone(t *testing.T, browser context.Context, s *site, path, axe string) {
	notes := s.publish("note ", maxNotes)
	ann := s.join(browser, path, "ann")
	ann.WaitEqual(shownNotes, notes)
	eval[any](ann, axe+"; undefined")
	ann.Do(chromedp.EmulateViewport(390, 700))
	ann.WaitEqual(`innerWidth`, 390)
	ann.WaitEqual(`document.querySelector("#notes li:last-child").getBoundingClientRect().bottom <= document.querySelector("#post").getBoundingClientRect().top`, true)
	assert.LessOrEqual(t, eval[float64](ann, `document.querySelector("#post").getBoundingClientRect().bottom`), 700.0, "the form is on the screen")
	assert.Equal(t, "text", eval[string](ann, `document.activeElement.id`))
	for _, colors := range []string{"light", "dark"} {
		ann.Do(browsertest.ColorScheme(colors))
		assert.Empty(t, browsertest.Violations(ann.Page), colors)
		ann.Screenshot("board-" + colors)
	}
	assert.LessOrEqual(t, eval[int](ann, `document.documentElement.scrollWidth`), 390, "the page does not scroll horizontally")
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
